//! A network that fails on demand: a TCP proxy in front of a server.

mod connection;
mod control;
mod faults;
mod pending;
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
            true,
        )
    }

    /// Opens a proxy in front of `host:port`.
    #[must_use = "the proxy goes when it is dropped"]
    pub fn to(address: &str) -> Self {
        Self::open(address, String::new(), true)
    }

    /// Like [`to`](Self::to), for as long as its server runs. [`requests`](Self::requests) stays
    /// empty.
    pub(crate) fn before_all_of(address: &str) -> Self {
        Self::open(address, String::new(), false)
    }

    fn open(target: &str, userinfo: String, keeps_requests: bool) -> Self {
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
            userinfo,
            control,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// The URL for clients: `redis://127.0.0.1:<port>/`, with the server's password if there is
    /// one.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}{}/", self.userinfo, self.address())
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
