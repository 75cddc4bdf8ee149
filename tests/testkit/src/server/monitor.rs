//! Commands that clients send, without those that scripts call.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::builder::FIXTURE_USER;
use crate::{PATIENCE, unix::UnixStream, within};

/// One command that a client sent, as `MONITOR` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCommand {
    /// The client's address.
    pub client: String,
    /// The command and its arguments, with the server's escapes.
    pub words: Vec<String>,
}

impl ClientCommand {
    /// Returns whether this is the command `name`, in any case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.words
            .first()
            .is_some_and(|word| word.eq_ignore_ascii_case(name))
    }
}

/// Watches the commands of clients by `MONITOR`, in the server's order.
///
/// It leaves out commands of scripts and of the fixture (the Unix socket). `MONITOR` itself hides
/// `AUTH` and administrative commands (`CONFIG`, `CLIENT LIST`).
#[derive(Debug)]
pub struct CommandWatch {
    stream: BufReader<UnixStream>,
    marker: UnixStream,
    seen: Vec<ClientCommand>,
}

impl CommandWatch {
    pub(super) async fn on(socket: &Path) -> Self {
        let mut stream = BufReader::new(log_in(socket).await);
        tell(&mut stream, "MONITOR").await;
        Self {
            stream,
            marker: log_in(socket).await,
            seen: Vec::new(),
        }
    }

    /// Returns all commands so far, in order.
    pub async fn seen(&mut self) -> &[ClientCommand] {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // The server shows all earlier commands before the marker.
        let mark = format!("watched-until-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let shown = format!("\"{mark}\"");
        self.marker
            .write_all(format!("ECHO {mark}\r\n").as_bytes())
            .await
            .expect("the server reads");
        loop {
            let line = read_line(&mut self.stream).await;
            if line.ends_with(&shown) {
                return &self.seen;
            }
            self.seen.extend(parse(&line));
        }
    }

    /// Returns the number of commands so far.
    pub async fn count(&mut self) -> u64 {
        self.seen().await.len() as u64
    }

    /// Returns the number of commands with this name so far.
    pub async fn count_of(&mut self, name: &str) -> u64 {
        self.seen()
            .await
            .iter()
            .filter(|command| command.is(name))
            .count() as u64
    }

    /// Forgets the commands so far.
    pub async fn clear(&mut self) {
        self.seen().await;
        self.seen.clear();
    }
}

/// Opens a connection as the fixture's user.
async fn log_in(socket: &Path) -> UnixStream {
    let socket = socket.to_string_lossy();
    let stream = UnixStream::connect(&*socket).await;
    let mut stream = BufReader::new(stream.expect("the server runs"));
    let login = format!("AUTH {FIXTURE_USER} {FIXTURE_USER}");
    tell(&mut stream, &login).await;
    stream.into_inner()
}

async fn tell(stream: &mut BufReader<UnixStream>, command: &str) {
    let line = format!("{command}\r\n");
    let written = stream.write_all(line.as_bytes()).await;
    written.expect("the server reads");
    assert_eq!(read_line(stream).await, "+OK", "{command}");
}

async fn read_line(stream: &mut BufReader<UnixStream>) -> String {
    const LIMIT: Duration = PATIENCE;
    let mut line = String::new();
    let read = within(
        LIMIT,
        "the watched server replies",
        stream.read_line(&mut line),
    )
    .await;
    assert!(
        read.is_ok_and(|length| length > 0),
        "the server went away while it was watched"
    );
    line.trim_end().to_owned()
}

/// `+1795251435.448151 [0 127.0.0.1:58000] "evalsha" "…" "0"` → the client's address and the words.
fn parse(line: &str) -> Option<ClientCommand> {
    let (_, rest) = line.split_once(" [")?;
    let (origin, rest) = rest.split_once("] ")?;
    let (_, client) = origin.split_once(' ')?;
    if client == "lua" || client.starts_with("unix:") {
        return None;
    }
    Some(ClientCommand {
        client: client.to_owned(),
        words: words(rest),
    })
}

/// Splits quoted words. Inside a word a quote is escaped, as every special character is.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut escaped = false;
    for character in text.chars() {
        match (&mut word, character) {
            (None, '"') => word = Some(String::new()),
            (None, _) => {}
            (Some(_), '"') if !escaped => words.extend(word.take()),
            (Some(text), _) => {
                escaped = character == '\\' && !escaped;
                text.push(character);
            }
        }
    }
    words
}
