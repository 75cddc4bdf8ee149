//! A TCP proxy that delays bytes by a fixed time. It runs in its own process, so its cost does not
//! count for the measured client.
//!
//! It waits with `timerfd`, because tokio's timers have a resolution of a millisecond.

use std::{
    io::{self, BufRead as _, stdin},
    net::Ipv4Addr,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Result;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest, unix::AsyncFd},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};

use crate::{clock, runtime, say::say};

/// The number of bytes for each read.
const CHUNK: usize = 16 * 1024;

/// Opens a port for each address and prints the ports. Each input line sets the delay of one
/// direction in nanoseconds. Returns when the input ends.
pub(crate) fn serve(addresses: &[String]) -> Result<()> {
    let runtime = runtime::current_thread()?;
    let delay = Arc::new(AtomicU64::new(0));
    let mut ports = Vec::with_capacity(addresses.len());
    for address in addresses {
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        ports.push(listener.local_addr()?.port());
        runtime.spawn(accept(listener, address.clone(), Arc::clone(&delay)));
    }
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    say(&ports)?;
    for line in stdin().lock().lines() {
        delay.store(line?.parse()?, Ordering::Relaxed);
        say(&true)?;
    }
    Ok(())
}

async fn accept(listener: TcpListener, address: String, delay: Arc<AtomicU64>) {
    while let Ok((client, _)) = listener.accept().await {
        let connection = connect(client, address.clone(), Arc::clone(&delay));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("the delaying proxy lost a connection: {error}");
            }
        });
    }
}

async fn connect(client: TcpStream, address: String, delay: Arc<AtomicU64>) -> io::Result<()> {
    let server = TcpStream::connect(address).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    pass(from_client, to_server, Arc::clone(&delay))?;
    pass(from_server, to_client, delay)
}

/// Delays one direction. The end of the stream has the same delay.
fn pass(from: OwnedReadHalf, to: OwnedWriteHalf, delay: Arc<AtomicU64>) -> io::Result<()> {
    let timer = Timer::new()?;
    let (arrived, pending) = mpsc::unbounded_channel();
    tokio::spawn(receive(from, arrived, delay));
    tokio::spawn(deliver(pending, to, timer));
    Ok(())
}

/// The time when bytes are due, and the bytes.
type Chunk = (u64, Vec<u8>);

async fn receive(
    mut from: OwnedReadHalf,
    arrived: mpsc::UnboundedSender<Chunk>,
    delay: Arc<AtomicU64>,
) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let due = clock::now() + delay.load(Ordering::Relaxed);
        if arrived.send((due, buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

async fn deliver(
    mut pending: mpsc::UnboundedReceiver<Chunk>,
    mut to: OwnedWriteHalf,
    timer: Timer,
) -> io::Result<()> {
    while let Some((due, bytes)) = pending.recv().await {
        timer.until(due).await?;
        to.write_all(&bytes).await?;
    }
    to.shutdown().await
}

struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    #[expect(
        deprecated,
        reason = "its replacement is unsafe; this descriptor stays open for as long as it is registered"
    )]
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self(AsyncFd::with_interest(timer, Interest::READABLE)?))
    }

    /// Waits until a time of [`clock::now`].
    async fn until(&self, due: u64) -> io::Result<()> {
        if due <= clock::now() {
            return Ok(());
        }
        let part = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: part(due / 1_000_000_000),
                tv_nsec: part(due % 1_000_000_000),
            },
        };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            let expirations = ready.try_io(|timer| {
                let read = rustix::io::read(timer.get_ref(), &mut [0_u8; 8]);
                read.map_err(io::Error::from)
            });
            if let Ok(read) = expirations {
                return read.map(drop);
            }
        }
    }
}
