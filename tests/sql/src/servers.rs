//! Databases for one test, of the system's packages.

use std::{
    env,
    fs::{self, File},
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use rlock_testkit::{LeashedChild, port};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::session::{Database, UNPREPARED};

const PATIENCE: Duration = Duration::from_mins(1);

/// The system's unprivileged user, because these servers refuse to run as root.
const UNPRIVILEGED: u32 = 65_534;

/// A database for one test: a server on a free loopback port, or a file. It goes when it is dropped, or when the test
/// process dies.
#[derive(Debug)]
pub struct Server {
    /// How clients reach it.
    pub url: String,
    port: u16,
    child: Option<LeashedChild>,
    // Removed after the process has ended.
    _directory: Directory,
}

impl Server {
    /// Starts an empty database.
    #[must_use = "it goes when it is dropped"]
    pub fn start(database: Database) -> Self {
        match database {
            Database::Postgres => Self::postgres(),
            Database::MariaDb | Database::MySql => Self::mariadb(),
            Database::Sqlite => Self::sqlite(),
        }
    }

    fn sqlite() -> Self {
        let directory = Directory::create();
        let url = directory.0.join("file.db").display().to_string();
        Self {
            url,
            port: 0,
            child: None,
            _directory: directory,
        }
    }

    fn postgres() -> Self {
        let directory = Directory::create();
        let data = directory.0.join("data");
        let mut initdb = directory.command("initdb", "postgresql");
        initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8"]);
        initdb.args(["--locale=C", "--no-sync", "--pgdata"]);
        let initialized = initdb.arg(&data).stdout(Stdio::null()).status();
        assert!(
            initialized.is_ok_and(|status| status.success()),
            "{initdb:?}"
        );

        let mut server = Self::launch(
            directory,
            "ready to accept connections",
            |directory, port| {
                let mut postgres = directory.command("postgres", "postgresql");
                postgres
                    .arg("-D")
                    .arg(&data)
                    .args(["-p", &port.to_string()]);
                postgres.arg("-k").arg(&directory.0);
                for setting in [
                    "listen_addresses=127.0.0.1",
                    "fsync=off",
                    "synchronous_commit=off",
                ] {
                    postgres.args(["-c", setting]);
                }
                postgres
            },
        );
        server.url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
        server
    }

    fn mariadb() -> Self {
        let directory = Directory::create();
        let data = directory.0.join("data");
        for path in [data.clone(), data.join("test")] {
            fs::create_dir(&path).expect("the directory is writable");
            give(&path);
        }
        let mut server = Self::launch(directory, "ready for connections", |directory, port| {
            let mut mariadbd = directory.command("mariadbd", "mariadb-server");
            // Without tables of its own, the server lets any user in.
            mariadbd.args([
                "--no-defaults",
                "--skip-grant-tables",
                "--bind-address=127.0.0.1",
            ]);
            mariadbd.args([
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-stats-persistent=0",
            ]);
            mariadbd.arg(format!("--datadir={}", data.display()));
            mariadbd.arg(format!("--socket={}", directory.0.join("socket").display()));
            mariadbd.arg(format!("--port={port}"));
            mariadbd
        });
        server.url = format!("mysql://root@127.0.0.1:{}/test", server.port);
        server
    }

    /// Starts a `PgBouncer` in transaction mode, before this Postgres. With this many connections, each transaction uses
    /// another one than the transaction before.
    #[must_use = "it goes when it is dropped"]
    pub fn pgbouncer(&self, connections: usize) -> Self {
        let to = self.port;
        let mut server = Self::launch(Directory::create(), "process up", |directory, port| {
            let file = directory.0.join("pgbouncer.ini");
            let text = format!(
                "[databases]\npostgres = host=127.0.0.1 port={to} user=postgres\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
                 pool_mode = transaction\ndefault_pool_size = {connections}\nserver_round_robin = 1\n\
                 ignore_startup_parameters = extra_float_digits\n"
            );
            fs::write(&file, text).expect("the directory is writable");
            let mut pgbouncer = directory.command("pgbouncer", "pgbouncer");
            pgbouncer.arg(file);
            pgbouncer
        });
        server.url = format!(
            "postgres://postgres@127.0.0.1:{}/postgres{UNPREPARED}",
            server.port
        );
        server
    }

    /// Starts a process, and returns once `ready` is in its log.
    fn launch(
        directory: Directory,
        ready: &str,
        command: impl Fn(&Directory, u16) -> Command,
    ) -> Self {
        let log = directory.0.join("log");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let port = port::number(&port::listen());
            let mut command = command(&directory, port);
            let output = File::create(&log).expect("the directory is writable");
            command
                .stderr(output.try_clone().expect("a file"))
                .stdout(output);
            let child = LeashedChild::spawn(command.stdin(Stdio::null()), Some(&directory.0));
            let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
            loop {
                let exited = child.exited();
                let text = fs::read_to_string(&log).unwrap_or_default();
                if exited.is_none() && text.contains(ready) {
                    return Self {
                        url: String::new(),
                        port,
                        child: Some(child),
                        _directory: directory,
                    };
                }
                assert!(
                    Instant::now() < deadline,
                    "{command:?} is not ready:\n{text}"
                );
                if let Some(status) = exited {
                    // Another process may have taken the port.
                    assert!(
                        text.contains("in use"),
                        "{command:?} ended, {status}:\n{text}"
                    );
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        // A Postgres that is killed leaves a segment of shared memory behind.
        let id = i32::try_from(child.pid()).ok().and_then(Pid::from_raw);
        let _ = kill_process(id.expect("a process id"), Signal::QUIT);
        let deadline = Instant::now() + PATIENCE;
        while child.exited().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A directory that is removed when this is dropped.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("rlock-sql-{}-{number}", process::id()));
        fs::create_dir(&path).expect("the directory for temporary files is writable");
        let directory = Self(path);
        give(&directory.0);
        directory
    }

    fn command(&self, program: &str, package: &str) -> Command {
        let mut command = Command::new(find(program, package));
        command.current_dir(&self.0);
        if geteuid().is_root() {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        command
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Gives a file to the user that servers run as.
fn give(path: &Path) {
    if geteuid().is_root() {
        chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root may do that");
    }
}

/// Finds a program, also where Debian hides those of Postgres.
fn find(program: &str, package: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = env::split_paths(&path).collect();
    directories.push("/usr/sbin".into());
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        directories.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    let mut programs = directories.iter().map(|directory| directory.join(program));
    programs.find(|path| path.is_file()).unwrap_or_else(|| {
        panic!(
            "{program} is not installed, and this test needs a real one: `apt-get install {package}`, or `scripts/test-all sql`"
        )
    })
}
