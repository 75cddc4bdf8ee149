//! A `PgBouncer` in front of a Postgres server.

use std::fs;

use crate::{LeashedChild, PostgresServer, package::Directory};

/// A pooler on a free loopback port. It ends when this is dropped, or when the test process dies.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    /// The address of the server behind it.
    server: String,
    _child: LeashedChild,
    _directory: Directory,
}

impl Pooler {
    /// Starts a pooler that gives each transaction a session of the server, in turn.
    #[must_use = "it ends when it is dropped"]
    pub fn of_transactions(server: &PostgresServer) -> Self {
        Self::start(server, "transaction", "")
    }

    /// Like [`of_transactions`](Self::of_transactions), for drivers that send a start-up parameter which a pooler refuses by default.
    #[must_use = "it ends when it is dropped"]
    pub fn of_transactions_that_ignores(server: &PostgresServer, parameter: &str) -> Self {
        let ignores = format!("ignore_startup_parameters = {parameter}\n");
        Self::start(server, "transaction", &ignores)
    }

    /// Starts a pooler that gives each connection a session of the server for as long as it lasts.
    #[must_use = "it ends when it is dropped"]
    pub fn of_sessions(server: &PostgresServer) -> Self {
        Self::start(server, "session", "")
    }

    fn start(server: &PostgresServer, mode: &str, further: &str) -> Self {
        let (directory, server) = (Directory::new(), server.address());
        let (host, to) = server.split_once(':').expect("an address");
        let (port, child) = directory.launch("process up", |port| {
            let settings = format!(
                "[databases]\npostgres = host={host} port={to} user=postgres\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
                 pool_mode = {mode}\ndefault_pool_size = 40\nmax_client_conn = 1000\nserver_round_robin = 1\n\
                 {further}"
            );
            fs::write(directory.path().join("settings"), settings).expect("it is writable");
            let mut pgbouncer = directory.command("pgbouncer");
            pgbouncer.arg("settings");
            pgbouncer
        });
        Self {
            port,
            server,
            _child: child,
            _directory: directory,
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
