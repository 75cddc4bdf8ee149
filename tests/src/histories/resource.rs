//! The data that the locks protect: two registers for each key.
//!
//! One refuses stale accesses by their tokens: writes below the highest token of any access, and
//! reads below the highest token of a write. Readers have no order among themselves. The other
//! accepts every access and counts the stale writes. The resource lives in the process of the run
//! and accepts accesses over TCP, so that they may be late.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
};

use super::{
    clock,
    collect::Recorder,
    record::{Access, AccessKind, Record},
};
use rlock_model::witness::Fence;
use rlock_testkit::port;

/// The two registers of a key.
#[derive(Debug, Default)]
pub(super) struct Registers {
    fence: Fence,
    /// The owners that have written, numbered in the order of their first writes.
    writers: HashMap<String, u64>,
    /// The writer with the highest number.
    newest: u64,
}

impl Registers {
    /// Returns whether the fence accepted the write, and whether a later writer had already
    /// written.
    pub(super) fn write(&mut self, owner: &str, token: u64) -> (bool, bool) {
        let accepted = self.fence.write(token).is_none();
        let next = self.newest + 1;
        let writer = *self.writers.entry(owner.to_owned()).or_insert(next);
        self.newest = self.newest.max(writer);
        (accepted, writer < self.newest)
    }

    /// Returns whether the fence accepted the read. From then on it refuses writes with smaller
    /// tokens.
    pub(super) fn read(&mut self, token: u64) -> bool {
        self.fence.read(token).is_none()
    }
}

type Shared = Arc<Mutex<HashMap<String, Registers>>>;

/// Opens the resource, which lives as long as the runtime.
pub(super) fn open(recorder: &Recorder) -> SocketAddr {
    let listener = port::listen();
    let address = listener.local_addr().expect("a listener has an address");
    listener.set_nonblocking(true).expect("sockets do that");
    let listener = TcpListener::from_std(listener).expect("inside a runtime");
    let recorder = recorder.clone();
    let registers = Shared::default();
    tokio::spawn(async move {
        loop {
            if let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&registers), recorder.clone()));
            }
        }
    });
    address
}

async fn serve(stream: TcpStream, registers: Shared, recorder: Recorder) {
    let _ = stream.set_nodelay(true);
    let (from, mut to) = stream.into_split();
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let accepted = take(&line, &registers, &recorder);
        let answer: &[u8] = if accepted {
            b"accepted\n"
        } else {
            b"refused\n"
        };
        if to.write_all(answer).await.is_err() {
            return;
        }
    }
}

fn take(line: &str, registers: &Shared, recorder: &Recorder) -> bool {
    let mut words = line.split(' ');
    let mut word = || words.next().expect("clients send four words");
    let (kind, key, owner, token) = (word(), word(), word(), word());
    let token = token.parse().expect("a token is a number");
    let mut all = registers.lock().unwrap_or_else(PoisonError::into_inner);
    let registers = all.entry(key.to_owned()).or_default();
    let (kind, (accepted, late)) = match kind {
        "read" => (AccessKind::Read, (registers.read(token), false)),
        _ => (AccessKind::Write, registers.write(owner, token)),
    };
    // Recorded under the mutex, so that the history has the order of the resource.
    recorder.note(Record::Accessed(Access {
        kind,
        key: key.to_owned(),
        owner: owner.to_owned(),
        token,
        at: clock::now(),
        accepted,
        late,
    }));
    accepted
}

/// A client's connection to the resource. An access whose caller gave up still happens, perhaps
/// late.
#[derive(Clone, Debug)]
pub(super) struct Resource(mpsc::UnboundedSender<Request>);

#[derive(Debug)]
struct Request {
    line: String,
    answer: oneshot::Sender<bool>,
}

impl Resource {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the run is alive");
        let _ = stream.set_nodelay(true);
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(carry(stream, requests));
        Self(sender)
    }

    /// Reads or writes, and returns whether the fence accepted it.
    pub(super) async fn access(
        &self,
        kind: AccessKind,
        key: &str,
        owner: &str,
        token: u64,
    ) -> bool {
        let (answer, answered) = oneshot::channel();
        let line = format!("{kind} {key} {owner} {token}\n");
        let sent = self.0.send(Request { line, answer });
        sent.is_ok() && answered.await.unwrap_or(false)
    }
}

async fn carry(stream: TcpStream, mut requests: mpsc::UnboundedReceiver<Request>) {
    let (from, mut to) = stream.into_split();
    let mut answers = BufReader::new(from).lines();
    while let Some(Request { line, answer }) = requests.recv().await {
        if to.write_all(line.as_bytes()).await.is_err() {
            return;
        }
        let Ok(Some(said)) = answers.next_line().await else {
            return;
        };
        let _ = answer.send(said == "accepted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSES: bool = true;
    const LATE: bool = true;

    #[test]
    fn the_fence_refuses_stale_accesses_and_later_holders_make_writes_late_whatever_the_tokens_say()
    {
        let mut registers = Registers::default();
        assert_eq!(registers.write("a", 2), (PASSES, !LATE));
        assert!(registers.read(4));
        assert!(registers.read(3), "readers have no order");
        assert_eq!(registers.write("a", 2), (!PASSES, !LATE));
        assert_eq!(registers.write("b", 5), (PASSES, !LATE));
        assert!(!registers.read(4));
        assert_eq!(registers.write("a", 5), (PASSES, LATE));
    }
}
