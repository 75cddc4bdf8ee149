//! A network that fails on demand: a TCP proxy in front of a server.

mod connection;
mod control;
mod dialogue;
mod faults;
mod pending;
mod postgres;
mod request;
mod resp;

pub use request::Request;

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::{RedisServer, port, serve::serve_until};
use control::Control;

/// A TCP proxy that loses, delays and cuts on demand.
///
/// It runs on its own thread and runtime, so a blocked test does not stop it. It closes when it is dropped. Every
/// method takes effect before it returns. A fault with a count starts again from zero when its method is called
/// again.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    /// What precedes and follows the address in the URL for clients.
    url: [String; 2],
    control: Arc<Control>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Opens a proxy in front of a server's TCP port.
    #[must_use = "the proxy goes when it is dropped"]
    pub fn in_front_of(server: &RedisServer) -> Self {
        Self::before(&server.url())
    }

    /// Opens a proxy in front of the server of this URL, of Redis or Postgres.
    #[must_use = "the proxy goes when it is dropped"]
    pub fn before(url: &str) -> Self {
        Self::open(url, true)
    }

    /// Like [`before`](Self::before), for as long as its server runs. [`requests`](Self::requests) stays
    /// empty.
    pub(crate) fn before_all_of(url: &str) -> Self {
        Self::open(url, false)
    }

    fn open(url: &str, keeps_requests: bool) -> Self {
        let begins = url.find("://").map_or(0, |scheme| scheme + 3);
        let begins = url.rfind('@').map_or(begins, |userinfo| userinfo + 1);
        let (before, rest) = url.split_at(begins);
        let (target, after) = rest.split_once('/').unwrap_or((rest, ""));
        let url = [before.to_owned(), format!("/{after}")];
        let listener = port::listen();
        let port = port::number(&listener);
        let control = Arc::new(Control::new(target, keeps_requests));
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(format!("proxy-{port}"))
            .spawn({
                let control = Arc::clone(&control);
                move || {
                    serve_until(listener, stopped, |listener| accept(listener, control))
                        .expect("the proxy's runtime starts");
                }
            })
            .expect("threads can be started");
        Self {
            port,
            url,
            control,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// The URL for clients: that of the server, with this proxy's address.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.join(&self.address())
    }

    /// The proxy's address, `127.0.0.1:<port>`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port where clients connect.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
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

async fn accept(listener: TcpListener, control: Arc<Control>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        if control.weather.borrow().refuse {
            let _ = client.set_zero_linger();
            continue;
        }
        let number = control.next_connection();
        tokio::spawn(connection::serve(client, number, Arc::clone(&control)));
    }
}
