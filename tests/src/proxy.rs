//! A network that fails on demand: a TCP proxy in front of a server.

mod connection;
mod control;
mod pending;
mod resp;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::{RedisServer, port, serve::serve_until};
use control::{Control, Flow};

/// A request as the proxy saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command and its arguments.
    pub words: Vec<Vec<u8>>,
}

impl Request {
    /// The command's name in capitals.
    #[must_use]
    pub fn name(&self) -> String {
        self.words
            .first()
            .map(|word| String::from_utf8_lossy(word).to_uppercase())
            .unwrap_or_default()
    }

    /// Whether the request begins with these words, in whatever case: `"EVALSHA"`,
    /// `"CLIENT TRACKING"`.
    #[must_use]
    pub fn is(&self, command: &str) -> bool {
        let mut words = self.words.iter();
        command.split_whitespace().all(|expected| {
            words
                .next()
                .is_some_and(|word| word.eq_ignore_ascii_case(expected.as_bytes()))
        })
    }

    /// Whether one of the words is this one, e.g. a key.
    #[must_use]
    pub fn mentions(&self, word: &str) -> bool {
        self.words.iter().any(|own| own == word.as_bytes())
    }
}

/// A TCP proxy that loses, delays and cuts what it is told to.
///
/// It runs on a thread and a runtime of its own, so a blocked test does not stop it, and it goes when
/// it is dropped. Every method takes effect before it returns: what the proxy reads afterwards is
/// subject to it. A fault that counts starts counting then, and starting it anew replaces it.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    userinfo: String,
    control: Arc<Control>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Opens a proxy in front of a server's TCP port.
    #[must_use = "the proxy goes when it is dropped"]
    pub fn in_front_of(server: &RedisServer) -> Self {
        let url = server.url();
        let userinfo = url
            .strip_prefix("redis://")
            .and_then(|rest| rest.split_once('@'));
        Self::open(
            &server.address(),
            userinfo
                .map(|(userinfo, _)| format!("{userinfo}@"))
                .unwrap_or_default(),
        )
    }

    /// Opens a proxy in front of `host:port`.
    #[must_use = "the proxy goes when it is dropped"]
    pub fn to(address: &str) -> Self {
        Self::open(address, String::new())
    }

    fn open(target: &str, userinfo: String) -> Self {
        let listener = port::listen();
        let port = port::number(&listener);
        let control = Arc::new(Control::new());
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(format!("proxy-{port}"))
            .spawn({
                let (control, target) = (Arc::clone(&control), Arc::from(target));
                move || {
                    serve_until(listener, stopped, |listener| {
                        accept(listener, target, control)
                    })
                    .expect("the proxy's runtime starts");
                }
            })
            .expect("threads can be started");
        Self {
            port,
            userinfo,
            control,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Where a client connects: `redis://127.0.0.1:<port>/`, with the server's password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}{}/", self.userinfo, self.address())
    }

    /// The proxy's address, `127.0.0.1:<port>`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Ends every fault. Connections that have lost bytes are reset; bytes that were held pass now.
    pub fn pass(&self) {
        self.control.clear();
    }

    /// Swallows everything in both directions, and accepts new connections all the same: a server
    /// that is gone behind a network that does not say so.
    pub fn black_hole(&self) {
        self.flows(Flow::Swallow, Flow::Swallow);
    }

    /// Swallows what clients send, and passes what the server sends.
    pub fn black_hole_requests(&self) {
        self.flows(Flow::Swallow, Flow::Pass);
    }

    /// Passes what clients send, and swallows what the server sends: commands run, nobody hears of it.
    pub fn black_hole_replies(&self) {
        self.flows(Flow::Pass, Flow::Swallow);
    }

    /// Holds everything in both directions until [`pass`](Self::pass), which delivers it late, as TCP
    /// does when an outage ends.
    pub fn hold(&self) {
        self.flows(Flow::Hold, Flow::Hold);
    }

    /// Holds what clients send until [`pass`](Self::pass): commands that run late.
    pub fn hold_requests(&self) {
        self.flows(Flow::Hold, Flow::Pass);
    }

    /// Holds what the server sends until [`pass`](Self::pass).
    pub fn hold_replies(&self) {
        self.flows(Flow::Pass, Flow::Hold);
    }

    /// Loses the next `count` replies. Each loss cuts its connection at once, so `count` attempts in a
    /// row fail; whatever the connection had passed before still arrives.
    ///
    /// Pushes of RESP3 and messages of subscriptions are no replies: they pass and do not count. The
    /// last confirmation of a SUBSCRIBE is its reply.
    pub fn drop_replies(&self, count: u64) {
        self.drop_replies_if(count, |_| true);
    }

    /// Loses the next `count` replies to requests that begin with `command`, e.g. `"EVALSHA"` or
    /// `"CLIENT TRACKING"`. As [`drop_replies`](Self::drop_replies) otherwise: the command has run.
    pub fn drop_replies_to(&self, command: &str, count: u64) {
        let command = command.to_owned();
        self.drop_replies_if(count, move |request| request.is(&command));
    }

    /// Loses the next `count` replies to requests that `matches` picks.
    pub fn drop_replies_if(&self, count: u64, matches: impl Fn(&Request) -> bool + Send + 'static) {
        self.control.lose_replies(count, Box::new(matches));
    }

    /// Loses the next `count` requests: the server never sees them. Each loss cuts its connection, so
    /// for the client it looks like a lost reply.
    pub fn drop_requests(&self, count: u64) {
        self.drop_requests_if(count, |_| true);
    }

    /// Loses the next `count` requests that begin with `command`.
    pub fn drop_requests_to(&self, command: &str, count: u64) {
        let command = command.to_owned();
        self.drop_requests_if(count, move |request| request.is(&command));
    }

    /// Loses the next `count` requests that `matches` picks.
    pub fn drop_requests_if(
        &self,
        count: u64,
        matches: impl Fn(&Request) -> bool + Send + 'static,
    ) {
        self.control.lose_requests(count, Box::new(matches));
    }

    /// Delivers whatever the server sends from now on this much later. Several on
    /// their way at once are each as late, not one after another.
    pub fn delay_replies(&self, delay: Duration) {
        self.control
            .weather
            .send_modify(|weather| weather.delay = delay);
    }

    /// Passes the next `bytes` bytes of the server, then cuts the connection that got the last of them.
    pub fn cut_after_bytes(&self, bytes: usize) {
        self.control.cut_after(bytes);
    }

    /// Resets all present connections (TCP RST). New ones pass.
    pub fn reset(&self) {
        self.control
            .weather
            .send_modify(|weather| weather.resets += 1);
    }

    /// Ends all present connections towards the client (TCP FIN), yet goes on passing what it sends.
    pub fn half_close(&self) {
        self.control
            .weather
            .send_modify(|weather| weather.half_closes += 1);
    }

    /// Closes every new connection at once. Present ones go on: add [`reset`](Self::reset) to end them.
    pub fn refuse(&self) {
        self.control
            .weather
            .send_modify(|weather| weather.refuse = true);
    }

    /// How many replies have been lost by `drop_replies…`.
    #[must_use]
    pub fn replies_lost(&self) -> u64 {
        self.control.replies_lost()
    }

    /// How many requests have been lost by `drop_requests…`.
    #[must_use]
    pub fn requests_lost(&self) -> u64 {
        self.control.requests_lost()
    }

    /// Every whole request that arrived here so far, lost ones included.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.control.requests()
    }

    /// How many requests that begin with `command` arrived here so far.
    #[must_use]
    pub fn requests_of(&self, command: &str) -> u64 {
        self.requests()
            .iter()
            .filter(|request| request.is(command))
            .count() as u64
    }

    fn flows(&self, requests: Flow, replies: Flow) {
        self.control.weather.send_modify(|weather| {
            weather.requests = requests;
            weather.replies = replies;
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, target: Arc<str>, control: Arc<Control>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        if control.weather.borrow().refuse {
            let _ = client.set_zero_linger();
            continue;
        }
        tokio::spawn(connection::serve(
            client,
            Arc::clone(&target),
            Arc::clone(&control),
        ));
    }
}
