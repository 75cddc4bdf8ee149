//! Servers and Sentinels for unit tests, which reply as the test says.

use std::{
    io::{self, ErrorKind},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

/// The reply of a server that refuses a command.
pub(super) const REFUSED: &str = "-NOPERM refused\r\n";

/// A server on loopback.
pub(super) struct FakeServer {
    pub(super) port: u16,
    /// The names of the commands that it has read.
    commands: Arc<Mutex<Vec<String>>>,
}

impl FakeServer {
    /// Starts a server. `reply` returns the reply to a command, which is empty if there is none.
    pub(super) async fn start(reply: impl Fn(&[String]) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (reply, commands) = (Arc::new(reply), Arc::<Mutex<Vec<String>>>::default());
        let log = Arc::clone(&commands);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (reply, log) = (Arc::clone(&reply), Arc::clone(&log));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Ok(words) = command(&mut stream).await {
                        log.lock().expect("no panic").extend(words.first().cloned());
                        let _ = stream.write_all(reply(&words).as_bytes()).await;
                    }
                });
            }
        });
        Self { port, commands }
    }

    /// Returns how many commands of this name it has read.
    pub(super) fn count(&self, name: &str) -> usize {
        let commands = self.commands.lock().expect("no panic");
        commands.iter().filter(|command| *command == name).count()
    }
}

/// Reads a command.
async fn command(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..number(stream).await? {
        let mut word = vec![0; number(stream).await? + 2];
        stream.read_exact(&mut word).await?;
        words.push(String::from_utf8_lossy(&word).trim_end().to_owned());
    }
    Ok(words)
}

/// Reads the length of a command or of a word.
async fn number(stream: &mut BufReader<TcpStream>) -> io::Result<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let digits = line.get(1..).unwrap_or_default().trim_end();
    digits.parse().map_err(|_| ErrorKind::InvalidData.into())
}

/// What Sentinels reply: epoch, port of the master, state of the failover. A Sentinel without it refuses everything.
type Reports = Arc<Mutex<[Option<(u64, u16, &'static str)>; 3]>>;

/// Three Sentinels that refuse subscriptions, so clients ask them each second.
#[derive(Clone, Default)]
pub(super) struct FakeSentinels {
    reports: Reports,
}

impl FakeSentinels {
    /// Starts the Sentinels. Returns the URL of a service of theirs, too.
    pub(super) async fn start() -> (Self, String) {
        let sentinels = Self::default();
        let mut hosts = Vec::new();
        for n in 0..3 {
            let reports = Arc::clone(&sentinels.reports);
            let sentinel = FakeServer::start(move |words| {
                let report = reports.lock().unwrap_or_else(PoisonError::into_inner)[n];
                let Some((epoch, port, state)) = report.filter(|_| words[0] == "SENTINEL") else {
                    return REFUSED.to_owned();
                };
                let (epoch, port) = (epoch.to_string(), port.to_string());
                match words[1].as_str() {
                    "MASTER" => array(&["config-epoch", &epoch, "failover-state", state]),
                    _ => array(&["127.0.0.1", &port]),
                }
            });
            hosts.push(format!("127.0.0.1:{}", sentinel.await.port));
        }
        let url = format!("redis-sentinel://{}/orders?protocol=resp2", hosts.join(","));
        (sentinels, url)
    }

    /// Sets what each Sentinel replies from now on.
    pub(super) fn reply(&self, reports: [Option<(u64, u16, &'static str)>; 3]) {
        *self.reports.lock().expect("no panic") = reports;
    }
}

fn array(words: &[&str]) -> String {
    let words: Vec<_> = (words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len())))
    .collect();
    format!("*{}\r\n{}", words.len(), words.concat())
}
