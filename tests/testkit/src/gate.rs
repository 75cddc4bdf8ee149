//! A TCP gate in front of a server, which delays each connection separately.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{oneshot, watch},
};

use crate::{RedisServer, port, serve::serve_until};

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What the client sends.
    Requests,
    /// What the server sends: replies, pushes and messages.
    Replies,
}

/// A TCP gate in front of a server. It holds bytes for each connection and direction separately,
/// and loses none.
///
/// Connections are numbered from 0 in the order in which clients opened them. A connection that the
/// server did not accept has no number. Like a [`Proxy`](crate::Proxy), a gate runs on its own
/// thread and runtime, and closes all connections when it is dropped.
#[derive(Debug)]
pub struct Gate {
    port: u16,
    connections: Arc<Connections>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Connections(Mutex<Vec<[Arc<Lane>; 2]>>);

/// One direction of one connection.
#[derive(Debug, Default)]
struct Lane {
    held: watch::Sender<bool>,
    /// Held bytes have arrived.
    holds: AtomicBool,
}

impl Gate {
    /// Opens a gate in front of a server's TCP port. The server has no password.
    #[must_use = "the gate goes when it is dropped"]
    pub fn in_front_of(server: &RedisServer) -> Self {
        let listener = port::listen();
        let port = port::number(&listener);
        let connections = Arc::<Connections>::default();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(format!("gate-{port}"))
            .spawn({
                let (connections, target) = (Arc::clone(&connections), server.address());
                move || {
                    serve_until(listener, stopped, |listener| {
                        accept(listener, &target, &connections)
                    })
                    .expect("the gate's runtime starts");
                }
            })
            .expect("threads can be started");
        Self {
            port,
            connections,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// The URL for clients: `redis://127.0.0.1:<port>/`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Returns how many connections the server has accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.all().len()
    }

    /// Holds the bytes of this direction from now on, until [`pass`](Self::pass).
    pub fn hold(&self, connection: usize, way: Way) {
        self.lane(connection, way).held.send_replace(true);
    }

    /// Returns whether held bytes have arrived in this direction.
    #[must_use]
    pub fn holds(&self, connection: usize, way: Way) -> bool {
        self.lane(connection, way).holds.load(Ordering::SeqCst)
    }

    /// Delivers the held bytes, and everything after them.
    pub fn pass(&self, connection: usize, way: Way) {
        self.lane(connection, way).held.send_replace(false);
    }

    fn lane(&self, connection: usize, way: Way) -> Arc<Lane> {
        let all = self.connections.all();
        let lanes = all.get(connection);
        Arc::clone(&lanes.expect("there is such a connection")[way as usize])
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Connections {
    fn all(&self) -> MutexGuard<'_, Vec<[Arc<Lane>; 2]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self) -> [Arc<Lane>; 2] {
        let lanes = <[Arc<Lane>; 2]>::default();
        self.all().push(lanes.clone());
        lanes
    }
}

impl Lane {
    /// Resolves when the direction is not held.
    async fn free(&self) {
        let mut held = self.held.subscribe();
        while *held.borrow_and_update() {
            self.holds.store(true, Ordering::SeqCst);
            // The sender lives as long as `self`.
            let _ = held.changed().await;
        }
        self.holds.store(false, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, target: &str, connections: &Connections) {
    loop {
        // Without a server the client's connection ends at once.
        if let Ok((client, _)) = listener.accept().await
            && let Ok(server) = TcpStream::connect(target).await
        {
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let [requests, replies] = connections.add();
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(carry(from_client, to_server, requests));
            tokio::spawn(carry(from_server, to_client, replies));
        }
    }
}

/// Carries bytes in one direction until either end is closed.
async fn carry(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    lane: Arc<Lane>,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        lane.free().await;
        if to.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
    lane.free().await;
    let _ = to.shutdown().await;
}
