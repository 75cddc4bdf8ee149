//! A real redis-server for one test.

mod builder;
mod control;
mod look;
mod monitor;
mod tls;

pub use builder::RedisServerBuilder;
pub(crate) use look::client_of;
pub use monitor::{ClientCommand, CommandWatch};
pub use tls::Authority;

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Proxy, child::LeashedChild};

/// A redis-server on a free loopback port, without persistence.
///
/// It stops when it is dropped, or when the test process dies.
#[derive(Debug)]
pub struct RedisServer {
    settings: RedisServerBuilder,
    directory: PathBuf,
    port: u16,
    /// Keeps the port from other test processes while the server is killed.
    _reserved: Option<UdpSocket>,
    tls: Option<Tls>,
    front: Option<Arc<Proxy>>,
    /// `None` between [`RedisServer::kill`] and [`RedisServer::restart`].
    process: Mutex<Option<LeashedChild>>,
}

#[derive(Debug)]
struct Tls {
    port: u16,
    authority: Arc<Authority>,
    ca_path: PathBuf,
}

impl RedisServer {
    /// Starts a server with the default options.
    #[must_use = "the server stops when it is dropped"]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns a builder of a server.
    #[must_use]
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// The URL for TCP: `redis://127.0.0.1:<port>/`, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}{}/", self.userinfo(), self.address())
    }

    /// Like [`url`](Self::url), for a user of [`RedisServerBuilder::acl_user`].
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@{}/", self.address())
    }

    /// The URL for the Unix socket: `unix://<path>`.
    #[must_use]
    pub fn unix_url(&self) -> String {
        let query = match &self.settings.password {
            Some(password) => format!("?pass={password}"),
            None => String::new(),
        };
        format!("unix://{}{query}", self.socket().display())
    }

    /// The URL for TLS: `rediss://127.0.0.1:<port>/`. Requires [`RedisServerBuilder::tls`].
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("rediss://{}127.0.0.1:{}/", self.userinfo(), self.tls_port())
    }

    /// The address of the TCP port, `127.0.0.1:<port>`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The TCP port. [`restart`](Self::restart) keeps it.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The TLS port.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.tls().port
    }

    /// The port that the server announces to other nodes of its cluster.
    pub(crate) fn cluster_port(&self) -> u16 {
        self.tls
            .as_ref()
            .map_or_else(|| self.announced_port(), |tls| tls.port)
    }

    /// The port for messages between the nodes of its cluster.
    pub(crate) fn bus_port(&self) -> u16 {
        self.tls.as_ref().map_or(self.port, |tls| tls.port) + 10_000
    }

    /// The TCP port that the server announces: its proxy's, if it has one.
    #[must_use]
    pub fn announced_port(&self) -> u16 {
        self.front.as_ref().map_or(self.port, |front| front.port())
    }

    /// The proxy that all clients but the fixture use. Requires
    /// [`RedisServerBuilder::behind_proxy`].
    #[must_use]
    pub fn front(&self) -> &Arc<Proxy> {
        self.front
            .as_ref()
            .expect("the server was built with `.behind_proxy()`")
    }

    /// The authority that signed the server's certificate, as PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.tls().authority.ca_pem()
    }

    /// The file with [`ca_pem`](Self::ca_pem), for example for `SSL_CERT_FILE`.
    #[must_use]
    pub fn ca_path(&self) -> &Path {
        &self.tls().ca_path
    }

    /// The port for replicas and Sentinels.
    #[must_use]
    pub fn replication_port(&self) -> u16 {
        if self.settings.replicates_by_tls {
            self.tls_port()
        } else {
            self.announced_port()
        }
    }

    /// The process id of the running server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running(|process| process.pid())
    }

    /// Returns whether the process runs: it was not killed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process().is_some()
    }

    /// Returns whether the process runs, and is not paused.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.process()
            .as_ref()
            .is_some_and(|process| !process.is_paused())
    }

    /// The directory of the server's socket, configuration and log. The fixture deletes it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Pauses the server (SIGSTOP): connections stay open without replies. Returns once the process
    /// is paused.
    pub fn pause(&self) {
        self.running(LeashedChild::pause);
    }

    /// Resumes a paused server (SIGCONT). It executes the requests of the pause.
    pub fn resume(&self) {
        self.running(LeashedChild::resume);
    }

    /// Kills the server (SIGKILL). Returns once the process has ended.
    pub fn kill(&self) {
        *self.process() = None;
    }

    /// Restarts the server on the same port, empty. Kills it first if it still runs.
    pub fn restart(&self) {
        self.kill();
        let _ = fs::remove_file(self.directory.join("dump.rdb"));
        // Redis 7 or later keeps its append-only files in a directory.
        let _ = fs::remove_dir_all(self.directory.join("appendonlydir"));
        let _ = fs::remove_file(self.directory.join("appendonly.aof"));
        self.restart_with_data();
    }

    /// Restarts the server on the same port with its [saved](Self::save) data, or its append-only
    /// files. Kills it first if it still runs. It may still be loading when this returns.
    pub fn restart_with_data(&self) {
        self.kill();
        let process = self.settings.launch_on(&self.directory, self.port);
        *self.process() = Some(process);
    }

    fn tls(&self) -> &Tls {
        self.tls
            .as_ref()
            .expect("the server was built with `.tls()`")
    }

    fn userinfo(&self) -> String {
        match &self.settings.password {
            Some(password) => format!(":{password}@"),
            None => String::new(),
        }
    }

    fn socket(&self) -> PathBuf {
        builder::socket_in(&self.directory)
    }

    fn process(&self) -> MutexGuard<'_, Option<LeashedChild>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running<T>(&self, act: impl FnOnce(&mut LeashedChild) -> T) -> T {
        act(self
            .process()
            .as_mut()
            .expect("the server runs; it was killed and not restarted"))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        *self.process() = None;
        let _ = fs::remove_dir_all(&self.directory);
    }
}
