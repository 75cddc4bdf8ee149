//! Starts a Postgres server for tests, of the system's packages, and kills and restarts it.

use std::{
    fs::{self, File},
    io::Write as _,
    net::UdpSocket,
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio_postgres::{Client, NoTls};

use crate::{
    Authority, LeashedChild, PATIENCE, Proxy, eventually,
    package::{Directory, give_to_server_user},
    port,
    unix::{self, Signal, hide},
};

/// What the log of a server says once it serves clients.
const READY: &str = "ready to accept";

/// The settings of a server with a certificate, whose files are in the directory above its data.
const ENCRYPTED: [&str; 3] = [
    "ssl=on",
    "ssl_cert_file=../server.pem",
    "ssl_key_file=../server.key",
];

/// A Postgres server on a free loopback port, without durability against a failure of the machine. It ends when this is
/// dropped, or when the test process dies.
#[derive(Debug)]
pub struct PostgresServer {
    port: u16,
    /// Keeps the port from other test processes while the server is killed.
    _reserved: Option<UdpSocket>,
    child: Mutex<Option<LeashedChild>>,
    settings: &'static [&'static str],
    front: Option<Proxy>,
    directory: Directory,
}

impl PostgresServer {
    /// Starts a server without any database but `postgres`.
    #[must_use = "it ends when it is dropped"]
    pub fn start() -> Self {
        Self::with(|_| {}, &[])
    }

    /// Starts a server that also accepts encrypted connections, with a certificate of this authority.
    #[must_use = "it ends when it is dropped"]
    pub fn start_with_tls(authority: &Authority) -> Self {
        let certify = |directory: &Path| {
            authority.certify(directory);
            let key = directory.join("server.key");
            hide(&key);
            give_to_server_user(&key);
        };
        Self::with(certify, &ENCRYPTED)
    }

    fn with(prepare: impl FnOnce(&Path), settings: &'static [&'static str]) -> Self {
        let directory = Directory::new();
        prepare(directory.path());
        let mut initdb = directory.command("initdb");
        initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8"]);
        initdb.args(["--locale=C", "--no-sync", "--pgdata=data"]);
        let made = initdb.stdout(Stdio::null()).status();
        assert!(made.is_ok_and(|status| status.success()), "{initdb:?}");
        // A client asks for more where a lock depends on it. A test may change it by `ALTER SYSTEM`.
        let settings_file = directory.path().join("data/postgresql.conf");
        let settings_file = File::options().append(true).open(settings_file);
        let written =
            settings_file.and_then(|mut file| file.write_all(b"\nsynchronous_commit = off\n"));
        written.expect("it is ours");
        Self::launched(directory, settings)
    }

    /// Starts a standby, which from then on confirms each commit of this server.
    #[must_use = "it ends when it is dropped"]
    pub async fn start_standby(&self) -> Self {
        let directory = Directory::new();
        let mut copy = directory.command("pg_basebackup");
        copy.args(["--dbname", &self.url(), "--pgdata=data"]);
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
        let copied = copy.status();
        assert!(copied.is_ok_and(|status| status.success()), "{copy:?}");
        let standby = Self::launched(directory, &[]);
        self.set("synchronous_standby_names", "'*'").await;
        let session = self.session().await;
        let confirms = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";
        eventually(PATIENCE, "the standby confirms", async || {
            let rows = session.query(confirms, &[]).await;
            !rows.expect("the server runs").is_empty()
        })
        .await;
        standby
    }

    /// Makes a standby the primary.
    pub async fn promote(&self) {
        self.execute("SELECT pg_promote()").await;
    }

    /// Changes a setting of the server by `ALTER SYSTEM`, and returns once new sessions have it.
    pub async fn set(&self, name: &str, value: &str) {
        self.execute(&format!("ALTER SYSTEM SET {name} = {value}"))
            .await;
        let loaded = async || -> String {
            let time = "SELECT pg_conf_load_time()::text";
            let row = self.session().await.query_one(time, &[]).await;
            row.expect("a time").get(0)
        };
        let before = loaded().await;
        self.execute("SELECT pg_reload_conf()").await;
        let what = format!("{name} is set");
        eventually(PATIENCE, &what, async || loaded().await != before).await;
    }

    /// Starts a server on the data in this directory.
    fn launched(directory: Directory, settings: &'static [&'static str]) -> Self {
        let (port, child) = directory.launch(READY, |port| postgres(&directory, port, settings));
        Self {
            port,
            _reserved: port::reserve(port),
            child: Mutex::new(Some(child)),
            settings,
            front: None,
            directory,
        }
    }

    fn child(&self) -> MutexGuard<'_, Option<LeashedChild>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The URL of its database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// Opens a proxy in front of it, for as long as it runs.
    #[must_use = "the server ends when it is dropped"]
    pub fn behind_proxy(mut self) -> Self {
        self.front = Some(Proxy::before_all_of(&self.url()));
        self
    }

    /// The proxy that all clients but the fixture use. Requires [`behind_proxy`](Self::behind_proxy).
    #[must_use]
    pub fn front(&self) -> &Proxy {
        let front = self.front.as_ref();
        front.expect("the server was started with `.behind_proxy()`")
    }

    /// The URL for clients: that of its proxy, if it has one.
    #[must_use]
    pub fn announced_url(&self) -> String {
        self.front.as_ref().map_or_else(|| self.url(), Proxy::url)
    }

    /// Opens a session.
    pub async fn session(&self) -> Client {
        let session = tokio_postgres::connect(&self.url(), NoTls).await;
        let (session, connection) = session.expect("the server runs");
        tokio::spawn(connection);
        session
    }

    /// Executes statements.
    pub async fn execute(&self, statements: &str) {
        let done = self.session().await.batch_execute(statements).await;
        done.expect("the server executes it");
    }

    /// Asks for pairs of texts.
    pub async fn pairs(&self, query: &str) -> Vec<(String, String)> {
        let rows = self.session().await.query(query, &[]).await;
        let rows = rows.expect("the server executes it");
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Asks for a number.
    pub async fn number(&self, query: &str) -> i64 {
        let row = self.session().await.query_one(query, &[]).await;
        row.expect("a row").get(0)
    }

    /// Keeps the row of a lock in a transaction, until that or the session ends.
    pub async fn keep_row(&self, lock: &str) -> Client {
        let session = self.session().await;
        let keep = format!("BEGIN; SELECT FROM rlock.lock WHERE key = '{lock}' FOR UPDATE");
        session.batch_execute(&keep).await.expect("it may");
        session
    }

    /// Deletes a lock, and returns whether there was one.
    pub async fn delete(&self, lock: &str) -> bool {
        let delete = "DELETE FROM rlock.lock WHERE key = $1";
        let deleted = self.session().await.execute(delete, &[&lock]).await;
        deleted.expect("there is a schema") > 0
    }

    /// Pauses all processes of the server.
    pub fn pause(&self) {
        let mut child = self.child();
        let child = child.as_mut().expect("it runs");
        // No further process starts then.
        child.pause();
        signal_children_of(child.pid(), Signal::STOP);
    }

    /// Resumes all processes.
    pub fn resume(&self) {
        let mut child = self.child();
        let child = child.as_mut().expect("it runs");
        signal_children_of(child.pid(), Signal::CONT);
        child.resume();
    }

    /// Pauses the process of one session.
    pub fn pause_session(&self, process: &str) {
        signal(process, Signal::STOP);
    }

    /// Resumes the process of one session.
    pub fn resume_session(&self, process: &str) {
        signal(process, Signal::CONT);
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Stops the server, which writes its data to the disk.
    pub fn stop(&self) {
        let mut child = self.child().take().expect("it runs");
        assert!(child.end_by(Signal::INT), "it does not stop");
    }

    /// Kills the server's first process, as a crash does, and the others with it. Its data are those on the disk.
    pub fn kill(&self) {
        let child = self.child().take();
        child.expect("it runs").kill();
    }

    /// Starts a killed or stopped server again, with the data on the disk.
    pub fn restart(&self) {
        let deadline = Instant::now() + PATIENCE;
        // The processes of its sessions end a moment later, and then free the memory that they share.
        let child = loop {
            let mut postgres = postgres(&self.directory, self.port, self.settings);
            if let Some(child) = self.directory.launch_on(&mut postgres, READY) {
                break child;
            }
            assert!(
                Instant::now() < deadline,
                "the port {} is in use",
                self.port
            );
            thread::sleep(Duration::from_millis(20));
        };
        *self.child() = Some(child);
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let child = self.child().take();
        if let Some(mut child) = child {
            if child.is_paused() {
                signal_children_of(child.pid(), Signal::CONT);
                child.resume();
            }
            // One that is killed leaves a segment of shared memory behind.
            child.end_by(Signal::QUIT);
        }
    }
}

/// Returns the command of a server on the data in this directory.
fn postgres(directory: &Directory, port: u16, settings: &[&str]) -> Command {
    let mut postgres = directory.command("postgres");
    postgres.args(["-D", "data", "-k", "", "-p", &port.to_string()]);
    for setting in [
        "listen_addresses=127.0.0.1",
        "max_connections=500",
        "fsync=off",
    ]
    .iter()
    .chain(settings)
    {
        postgres.args(["-c", setting]);
    }
    postgres
}

fn signal_children_of(parent: u32, signal: Signal) {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.expect("the process runs");
    for child in children.split_whitespace() {
        self::signal(child, signal);
    }
}

fn signal(process: &str, signal: Signal) {
    // It may just have ended.
    let _ = unix::kill(process.parse().expect("a process id"), signal);
}
