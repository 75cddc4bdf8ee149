//! The data that the locks protect: two registers for each key.
//!
//! One refuses tokens below the highest it has seen. The other accepts every write and counts the
//! stale ones. The resource lives in the process of the run and accepts writes over TCP, so that
//! they may be late.

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
    record::{Record, Written},
};
use rlock_testkit::port;

/// The two registers of a key.
#[derive(Debug, Default)]
pub(super) struct Registers {
    highest: u64,
    /// The owners that have written, numbered in the order of their first writes.
    holders: HashMap<String, u64>,
    /// The holder with the highest number.
    newest: u64,
}

impl Registers {
    /// Returns whether the fence accepted the write, and whether a later holder had already
    /// written.
    pub(super) fn write(&mut self, owner: &str, token: u64) -> (bool, bool) {
        let accepted = token >= self.highest;
        self.highest = self.highest.max(token);
        let next = self.newest + 1;
        let holder = *self.holders.entry(owner.to_owned()).or_insert(next);
        self.newest = self.newest.max(holder);
        (accepted, holder < self.newest)
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
    let mut word = || words.next().expect("clients write three words");
    let (key, owner, token) = (word(), word(), word());
    let token = token.parse().expect("a token is a number");
    let mut all = registers.lock().unwrap_or_else(PoisonError::into_inner);
    let (accepted, late) = all.entry(key.to_owned()).or_default().write(owner, token);
    // Recorded under the mutex, so that the history has the order of the resource.
    recorder.note(Record::Written(Written {
        key: key.to_owned(),
        owner: owner.to_owned(),
        token,
        at: clock::now(),
        accepted,
        late,
    }));
    accepted
}

/// A client's access to the resource. A write whose caller gave up still happens, perhaps late.
#[derive(Clone, Debug)]
pub(super) struct Resource(mpsc::UnboundedSender<Write>);

#[derive(Debug)]
struct Write {
    line: String,
    answer: oneshot::Sender<bool>,
}

impl Resource {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the run is alive");
        let _ = stream.set_nodelay(true);
        let (sender, writes) = mpsc::unbounded_channel();
        tokio::spawn(carry(stream, writes));
        Self(sender)
    }

    /// Writes, and returns whether the fence accepted it.
    pub(super) async fn write(&self, key: &str, owner: &str, token: u64) -> bool {
        let (answer, answered) = oneshot::channel();
        let line = format!("{key} {owner} {token}\n");
        let sent = self.0.send(Write { line, answer });
        sent.is_ok() && answered.await.unwrap_or(false)
    }
}

async fn carry(stream: TcpStream, mut writes: mpsc::UnboundedReceiver<Write>) {
    let (from, mut to) = stream.into_split();
    let mut answers = BufReader::new(from).lines();
    while let Some(Write { line, answer }) = writes.recv().await {
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
    fn the_fence_refuses_what_is_below_the_highest_token() {
        let mut registers = Registers::default();
        assert_eq!(registers.write("a", 2), (PASSES, !LATE));
        assert_eq!(registers.write("a", 2), (PASSES, !LATE));
        assert_eq!(registers.write("b", 4), (PASSES, !LATE));
        assert_eq!(registers.write("a", 2), (!PASSES, LATE));
        assert_eq!(registers.write("b", 4), (PASSES, !LATE));
    }

    #[test]
    fn a_write_after_a_later_holder_is_late_whatever_the_tokens_say() {
        let mut registers = Registers::default();
        registers.write("a", 7);
        registers.write("b", 7);
        assert_eq!(registers.write("a", 7), (PASSES, LATE));
    }
}
