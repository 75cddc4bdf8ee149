//! Chooses the options of a server, and starts it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use super::{Authority, RedisServer, Tls};
use crate::child::LeashedChild;
use crate::{PATIENCE, Proxy, port, unix::BlockingStream};

/// The user of the fixture itself, so that no test can lock the fixture out.
pub(super) const FIXTURE_USER: &str = "fixture";

/// Options of a [`RedisServer`].
#[derive(Clone, Debug, Default)]
pub struct RedisServerBuilder {
    port: Option<u16>,
    tls_port: Option<u16>,
    tls: Option<Arc<Authority>>,
    pub(super) replicates_by_tls: bool,
    debug: bool,
    behind_proxy: bool,
    /// The port of the proxy.
    announced: Option<u16>,
    part: Part,
    pub(super) password: Option<String>,
    lines: Vec<String>,
}

/// Names a program to run instead of `redis-server`: Redis 6.2 or later, or Valkey.
const PROGRAM: &str = "RLOCK_TEST_SERVER";

/// The part of a server in a deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Server,
    Sentinel,
    /// Of a cluster.
    Node,
}

/// The reason why a launched server does not reply.
enum Failure {
    NotInstalled,
    PortTaken,
    Other(String),
}

impl RedisServerBuilder {
    /// Adds a line of redis.conf, such as `("maxmemory", "4mb")`.
    #[must_use]
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.lines.push(format!("{name} {value}"));
        self
    }

    /// Sets a password (`requirepass`). It becomes part of the URLs, so choose one that needs no
    /// escaping.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.config("requirepass", password)
    }

    /// Adds a user, such as `("alice", "on >secret ~lock:* &lock:* +evalsha")`. The name `default`
    /// restricts clients that do not log in.
    #[must_use]
    pub fn acl_user(self, name: &str, rules: &str) -> Self {
        // Redis 6 gives a new user all channels.
        self.config("user", &format!("{name} resetchannels {rules}"))
    }

    /// Allows the command `DEBUG`.
    #[must_use]
    pub fn debug_commands(mut self) -> Self {
        self.debug = true;
        self
    }

    /// Takes this long to load each key at the start, and replies LOADING until all are loaded. Redis 6 only waits
    /// once every two megabytes.
    #[must_use]
    pub fn slow_to_load(self, each: Duration) -> Self {
        let slow = self
            .config("key-load-delay", &each.as_micros().to_string())
            .config("rdbcompression", "no");
        if major_version() < 7 {
            return slow;
        }
        slow.config("loading-process-events-interval-bytes", "1024")
    }

    /// Listens for TLS too, with a fresh certificate for `localhost` and `127.0.0.1`.
    #[must_use]
    pub fn tls(self) -> Self {
        self.tls_of(&Arc::new(Authority::new()))
    }

    /// Listens for TLS too, with a fresh certificate of this authority, which it also trusts.
    #[must_use]
    pub fn tls_of(mut self, authority: &Arc<Authority>) -> Self {
        self.tls = Some(Arc::clone(authority));
        self
    }

    /// Requires clients over TLS to have a certificate of the same authority.
    #[must_use]
    pub fn asks_for_certificates(self) -> Self {
        self.config("tls-auth-clients", "yes")
    }

    /// Speaks TLS to its replicas, its master and the Sentinels, too.
    #[must_use]
    pub fn replicates_by_tls(mut self) -> Self {
        self.replicates_by_tls = true;
        self.config("tls-replication", "yes")
    }

    /// Runs as a Sentinel of this master, under this service name. The quorum has to agree that the
    /// master is down, which each Sentinel suspects after this silence.
    #[must_use]
    pub fn sentinel(
        mut self,
        service: &str,
        master: &RedisServer,
        quorum: u32,
        silence: Duration,
    ) -> Self {
        self.part = Part::Sentinel;
        let port = master.replication_port();
        let silence = silence.as_millis();
        self.config(
            "sentinel",
            &format!("monitor {service} 127.0.0.1 {port} {quorum}"),
        )
        .config(
            "sentinel",
            &format!("down-after-milliseconds {service} {silence}"),
        )
        .config("sentinel", &format!("failover-timeout {service} 3000"))
    }

    /// Runs as a node of a cluster. Other nodes count it as dead after this silence. A cluster that
    /// has lost some slots serves the others.
    #[must_use]
    pub fn cluster_node(mut self, timeout: Duration) -> Self {
        self.part = Part::Node;
        self.config("cluster-enabled", "yes")
            .config("cluster-node-timeout", &timeout.as_millis().to_string())
            .config("cluster-replica-validity-factor", "0")
            .config("cluster-require-full-coverage", "no")
    }

    /// Puts the server behind a proxy and announces the proxy's address to Sentinels, its master
    /// and clients.
    ///
    /// All of them connect through the proxy. Nodes of a cluster connect to each other directly.
    /// Works with TCP only.
    #[must_use]
    pub fn behind_proxy(mut self) -> Self {
        self.behind_proxy = true;
        self
    }

    /// Listens on this port instead of any free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Starts the server and returns once it replies.
    #[must_use = "the server stops when it is dropped"]
    pub fn start(mut self) -> RedisServer {
        let directory = fresh_directory();
        let tls = self.tls.clone().map(|authority| {
            let ca_path = authority.certify(&directory);
            (authority, ca_path)
        });
        let chosen = self.port;
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Another process may take the port before the launch.
            let any = if self.part == Part::Node {
                port::of_node
            } else {
                free_port
            };
            let port = chosen.unwrap_or_else(any);
            self.tls_port = self.tls.as_ref().map(|_| any());
            let front = self
                .behind_proxy
                .then(|| Arc::new(Proxy::before_all_of(&format!("redis://127.0.0.1:{port}/"))));
            self.announced = front.as_ref().map(|front| front.port());
            match self.launch(&directory, port) {
                Ok(process) => {
                    let tls = tls.zip(self.tls_port);
                    let tls = tls.map(|((authority, ca_path), port)| Tls {
                        port,
                        authority,
                        ca_path,
                    });
                    return RedisServer {
                        settings: self,
                        directory,
                        port,
                        _reserved: port::reserve(port),
                        tls,
                        front,
                        process: Mutex::new(Some(process)),
                    };
                }
                Err(Failure::PortTaken) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(failure) => {
                    let _ = fs::remove_dir_all(&directory);
                    give_up(failure, port)
                }
            }
        }
    }

    /// Launches on exactly this port. Waits while the port is taken.
    pub(super) fn launch_on(&self, directory: &Path, port: u16) -> LeashedChild {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.launch(directory, port) {
                Ok(process) => return process,
                Err(Failure::PortTaken) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(failure) => give_up(failure, port),
            }
        }
    }

    fn launch(&self, directory: &Path, port: u16) -> Result<LeashedChild, Failure> {
        let log = directory.join("server.log");
        let configuration = directory.join("redis.conf");
        fs::write(&configuration, self.configuration(directory, port))?;
        let _ = fs::remove_file(socket_in(directory));

        let output = File::create(&log)?;
        let mut command = Command::new(program());
        command
            .arg(&configuration)
            .args((self.part == Part::Sentinel).then_some("--sentinel"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut process = LeashedChild::spawn(&mut command, Some(directory)).map_err(|error| {
            match error.kind() {
                io::ErrorKind::NotFound => Failure::NotInstalled,
                _ => error.into(),
            }
        })?;

        let deadline = Instant::now() + PATIENCE;
        // The socket lies in a private directory, so this server replies there and no other. The
        // server opens it after the ports.
        while !answers(&socket_in(directory)) {
            if let Some(status) = process.exited() {
                let log = fs::read_to_string(&log).unwrap_or_default();
                return Err(if log.contains("Address already in use") {
                    Failure::PortTaken
                } else {
                    Failure::Other(format!("it ended with {status}; its log:\n{log}"))
                });
            }
            if Instant::now() > deadline {
                return Err(Failure::Other(format!("no reply within {PATIENCE:?}")));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(process)
    }

    fn configuration(&self, directory: &Path, port: u16) -> String {
        let here = directory.display();
        let mut text = format!(
            "bind 127.0.0.1\nport {port}\nunixsocket \"{}\"\ndir \"{here}\"\n\
             daemonize no\nsave \"\"\nappendonly no\nloglevel warning\n\
             user {FIXTURE_USER} on >{FIXTURE_USER} ~* &* +@all\n",
            socket_in(directory).display(),
        );
        if let Some(port) = self.tls_port {
            let _ = write!(
                text,
                "tls-port {port}\ntls-cert-file \"{here}/server.pem\"\ntls-key-file \"{here}/server.key\"\n\
                 tls-ca-cert-file \"{here}/ca.pem\"\ntls-auth-clients no\n",
            );
        }
        if let Some(front) = self.announced {
            let whom = match self.part {
                Part::Node => "cluster",
                _ => "replica",
            };
            // A proxy would take a file that the master sends with its length for a message, and
            // wait for the end of its line.
            let _ = write!(
                text,
                "{whom}-announce-ip 127.0.0.1\n{whom}-announce-port {front}\nrepl-diskless-sync yes\n",
            );
        }
        if self.debug && major_version() >= 7 {
            // Redis 6 always allows `DEBUG`.
            text.push_str("enable-debug-command yes\n");
        }
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

fn program() -> OsString {
    let chosen = env::var_os(PROGRAM).filter(|program| !program.is_empty());
    chosen.unwrap_or_else(|| "redis-server".into())
}

/// Reads the version that the program prints: `Redis server v=7.0.15 …`.
fn major_version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let asked = Command::new(program()).arg("--version").output();
        let said = String::from_utf8_lossy(&asked.expect("the server's program starts").stdout)
            .into_owned();
        let version = said.split_once("v=").map_or("", |(_, version)| version);
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok());
        major.unwrap_or_else(|| panic!("{said:?} names no version"))
    })
}

fn give_up(failure: Failure, port: u16) -> ! {
    match failure {
        Failure::NotInstalled if env::var_os(PROGRAM).is_some() => {
            panic!(
                "{PROGRAM} names {}, which cannot be started",
                program().display()
            )
        }
        Failure::NotInstalled => panic!(
            "redis-server is not installed, and these tests need a real one: \
             `apt-get install redis-server`, `dnf install redis` or `brew install redis`"
        ),
        Failure::PortTaken => {
            panic!("redis-server cannot listen on port {port}: another process does")
        }
        Failure::Other(why) => panic!("redis-server did not start on port {port}: {why}"),
    }
}

/// The path of a Unix socket may have about 100 bytes, so the names are short.
pub(super) fn socket_in(directory: &Path) -> PathBuf {
    directory.join("redis.sock")
}

fn free_port() -> u16 {
    port::number(&port::listen())
}

fn fresh_directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!(
        "rlock-{}-{number}-{:06x}",
        process::id(),
        fastrand::u32(..0x100_0000)
    );
    let directory = env::temp_dir().join(name);
    fs::create_dir(&directory).expect("the directory for temporary files is writable");
    directory
}

/// Pings over the socket. A server that requires a password or is still loading counts as up.
fn answers(socket: &Path) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = BlockingStream::connect(&*socket.to_string_lossy())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 64];
        let length = stream.read(&mut answer)?;
        let up: [&[u8]; 3] = [b"+PONG", b"-NOAUTH", b"-LOADING"];
        Ok(up.iter().any(|word| answer[..length].starts_with(word)))
    };
    ask().unwrap_or(false)
}
