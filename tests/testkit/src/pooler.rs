//! A `PgBouncer` in front of a Postgres server, in a directory of its own.

use std::{
    env,
    fs::{self, File},
    path::PathBuf,
    process::{self, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    LeashedChild, PATIENCE, PostgresServer, port,
    postgres::{command, give},
};

/// A pooler on a free loopback port. It ends when this is dropped, or when the test process dies.
#[derive(Debug)]
pub struct Pooler {
    directory: PathBuf,
    port: u16,
    /// The address of the server behind it.
    server: String,
    _child: LeashedChild,
}

impl Pooler {
    /// Starts a pooler that gives each transaction a session of the server, in turn.
    #[must_use = "it ends when it is dropped"]
    pub fn of_transactions(server: &PostgresServer) -> Self {
        Self::start(server, "transaction")
    }

    /// Starts a pooler that gives each connection a session of the server for as long as it lasts.
    #[must_use = "it ends when it is dropped"]
    pub fn of_sessions(server: &PostgresServer) -> Self {
        Self::start(server, "session")
    }

    fn start(server: &PostgresServer, mode: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = env::temp_dir().join(format!("rlock-pooler-{}-{number}", process::id()));
        fs::create_dir(&directory).expect("the directory for temporary files is writable");
        give(&directory);
        let server = server.address();
        let (host, to) = server.split_once(':').expect("an address");
        let log = directory.join("log");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let port = port::number(&port::listen());
            let settings = format!(
                "[databases]\npostgres = host={host} port={to} user=postgres\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
                 pool_mode = {mode}\ndefault_pool_size = 40\nmax_client_conn = 1000\nserver_round_robin = 1\n"
            );
            fs::write(directory.join("settings"), settings).expect("it is writable");
            let output = File::create(&log).expect("it is writable");
            let mut pgbouncer = command("pgbouncer", &directory);
            pgbouncer
                .arg("settings")
                .stderr(output)
                .stdin(Stdio::null());
            let child = LeashedChild::spawn(&mut pgbouncer, Some(&directory));
            let mut child = child.unwrap_or_else(|error| panic!("{pgbouncer:?}: {error}"));
            while child.exited().is_none() {
                if fs::read_to_string(&log).is_ok_and(|text| text.contains("process up")) {
                    return Self {
                        port,
                        server,
                        _child: child,
                        directory,
                    };
                }
                thread::sleep(Duration::from_millis(5));
            }
            // Another process may have taken the port.
            let text = fs::read_to_string(&log).unwrap_or_default();
            assert!(Instant::now() < deadline, "{pgbouncer:?} ended:\n{text}");
        }
    }

    /// The URL of the database behind the pooler.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// Its host and port.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The same URL, with the address of the server.
    #[must_use]
    pub fn url_with_direct(&self) -> String {
        format!("{}?direct={}", self.url(), self.server)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
