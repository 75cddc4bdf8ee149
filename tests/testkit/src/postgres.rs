//! Starts a Postgres server for tests, of the system's packages, and kills and restarts it.

use std::{
    env,
    fs::{self, File, Permissions},
    io::Write as _,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tokio_postgres::{Client, NoTls};

use crate::{Authority, LeashedChild, PATIENCE, Proxy, port};

/// The system's unprivileged user, because Postgres refuses to run as root.
const UNPRIVILEGED: u32 = 65_534;

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
    directory: PathBuf,
    port: u16,
    child: Mutex<Option<LeashedChild>>,
    settings: &'static [&'static str],
    front: Option<Proxy>,
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
            fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("it is ours");
            give(&key);
        };
        Self::with(certify, &ENCRYPTED)
    }

    fn with(prepare: impl FnOnce(&Path), settings: &'static [&'static str]) -> Self {
        let initialize = |directory: &Path| {
            prepare(directory);
            let mut initdb = command("initdb", directory);
            initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8"]);
            initdb.args(["--locale=C", "--no-sync", "--pgdata=data"]);
            let made = initdb.stdout(Stdio::null()).status();
            assert!(made.is_ok_and(|status| status.success()), "{initdb:?}");
            // A client asks for more where a lock depends on it. A test may change it by `ALTER SYSTEM`.
            let settings_file = directory.join("data/postgresql.conf");
            let settings_file = File::options().append(true).open(settings_file);
            let written =
                settings_file.and_then(|mut file| file.write_all(b"\nsynchronous_commit = off\n"));
            written.expect("it is ours");
        };
        Self::launched(initialize, settings)
    }

    /// Starts a standby, which from then on confirms each commit of this server.
    #[must_use = "it ends when it is dropped"]
    pub async fn start_standby(&self) -> Self {
        let url = self.url();
        let copy = |directory: &Path| {
            let mut copy = command("pg_basebackup", directory);
            copy.args(["--dbname", &url, "--pgdata=data", "--write-recovery-conf"]);
            copy.args(["--checkpoint=fast", "--no-sync"]);
            let copied = copy.status();
            assert!(copied.is_ok_and(|status| status.success()), "{copy:?}");
        };
        let standby = Self::launched(copy, &[]);
        self.set("synchronous_standby_names", "'*'").await;
        let session = self.session().await;
        let confirms = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";
        let deadline = Instant::now() + PATIENCE;
        while session
            .query(confirms, &[])
            .await
            .is_ok_and(|rows| rows.is_empty())
        {
            assert!(Instant::now() < deadline, "the standby does not confirm");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
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
        let before = "SELECT pg_conf_load_time()::text";
        let session = self.session().await;
        let row = session.query_one(before, &[]).await.expect("a time");
        let before: String = row.get(0);
        self.execute("SELECT pg_reload_conf()").await;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let later = "SELECT pg_conf_load_time()::text";
            let row = self.session().await.query_one(later, &[]).await;
            if row.expect("a time").get::<_, String>(0) != before {
                return;
            }
            assert!(Instant::now() < deadline, "{name} is not set");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts a server on the data that `fill` puts into its directory.
    fn launched(fill: impl FnOnce(&Path), settings: &'static [&'static str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = env::temp_dir().join(format!("rlock-postgres-{}-{number}", process::id()));
        fs::create_dir(&directory).expect("the directory for temporary files is writable");
        give(&directory);
        fill(&directory);
        loop {
            let mut server = Self {
                port: port::number(&port::listen()),
                child: Mutex::default(),
                settings,
                front: None,
                directory: directory.clone(),
            };
            if server.launch() {
                return server;
            }
            // Another process has taken the port. The directory stays.
            server.directory = PathBuf::new();
        }
    }

    /// Starts the process. Returns false if the port is in use.
    fn launch(&self) -> bool {
        let log = self.directory.join("log");
        let output = File::create(&log).expect("the directory is writable");
        let mut postgres = command("postgres", &self.directory);
        postgres.args(["-D", "data", "-k", "", "-p", &self.port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "max_connections=500",
            "fsync=off",
        ]
        .iter()
        .chain(self.settings)
        {
            postgres.args(["-c", setting]);
        }
        postgres.stderr(output).stdin(Stdio::null());
        let child = LeashedChild::spawn(&mut postgres, Some(&self.directory));
        let mut child = child.unwrap_or_else(|error| panic!("{postgres:?}: {error}"));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (exited, text) = (child.exited(), fs::read_to_string(&log).unwrap_or_default());
            if exited.is_none() && text.contains("ready to accept") {
                *self.child() = Some(child);
                return true;
            }
            if let Some(status) = exited {
                assert!(text.contains("in use"), "{postgres:?}, {status}:\n{text}");
                return false;
            }
            assert!(Instant::now() < deadline, "not ready:\n{text}");
            thread::sleep(Duration::from_millis(5));
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
        let id = i32::try_from(child.pid()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("a process id"), Signal::INT).expect("it runs");
        let deadline = Instant::now() + PATIENCE;
        while child.exited().is_none() {
            assert!(Instant::now() < deadline, "it does not stop");
            thread::sleep(Duration::from_millis(5));
        }
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
        while !self.launch() {
            assert!(
                Instant::now() < deadline,
                "the port {} is in use",
                self.port
            );
            thread::sleep(Duration::from_millis(20));
        }
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
            let id = i32::try_from(child.pid()).ok().and_then(Pid::from_raw);
            let _ = kill_process(id.expect("a process id"), Signal::QUIT);
            let deadline = Instant::now() + PATIENCE;
            while child.exited().is_none() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
        }
        if self.directory != Path::new("") {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

fn signal_children_of(parent: u32, signal: Signal) {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.expect("the process runs");
    for child in children.split_whitespace() {
        self::signal(child, signal);
    }
}

fn signal(process: &str, signal: Signal) {
    let id = process.parse().ok().and_then(Pid::from_raw);
    // It may just have ended.
    let _ = kill_process(id.expect("a process id"), signal);
}

/// Gives a file to the user that the server runs as.
pub(crate) fn give(path: &Path) {
    if geteuid().is_root() {
        chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root may do that");
    }
}

/// Returns a command of this program in this directory, as an unprivileged user.
pub(crate) fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(find(program));
    command.current_dir(directory);
    if geteuid().is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command
}

/// Finds a program, also where Debian hides those of Postgres.
fn find(program: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = env::split_paths(&path).collect();
    directories.push(PathBuf::from("/usr/sbin"));
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        directories.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    let mut programs = directories.iter().map(|directory| directory.join(program));
    let found = programs.find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("{program} is not installed: `apt-get install postgresql`, or `scripts/test-all`")
    })
}
