//! One client's connection through the proxy: a pump for each direction.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::control::{Control, Flow, Lane, Weather};
use super::dialogue::{Meaning, Scan, begun};

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Closed by either side, or cut where a message was lost.
    Closed,
    /// By a reset.
    Reset,
}

/// Bytes on their way, and when they arrive.
type Delivery = (Instant, Vec<u8>);

/// Selects a direction.
type Direction = fn(&Weather) -> &Lane;

/// The network of one direction.
struct Link<'a> {
    control: &'a Control,
    weather: watch::Receiver<Weather>,
    direction: Direction,
    connection: u64,
    resets: u64,
    swallowed: bool,
}

impl<'a> Link<'a> {
    fn new(control: &'a Control, connection: u64, direction: Direction) -> Self {
        let weather = control.weather.subscribe();
        let resets = weather.borrow().resets;
        Self {
            control,
            weather,
            direction,
            connection,
            resets,
            swallowed: false,
        }
    }

    /// Returns when bytes that are read now arrive.
    fn arrival(&self) -> Instant {
        Instant::now() + (self.direction)(&self.weather.borrow()).delay
    }

    /// Reads the next bytes that pass.
    async fn read(&mut self, from: &mut ReadHalf<'_>, bytes: &mut Vec<u8>) -> Result<(), End> {
        loop {
            self.flow()?;
            let length = bytes.len();
            let read = tokio::select! {
                biased;
                changed = self.weather.changed() => {
                    changed.map_err(|_| End::Closed)?;
                    continue;
                }
                read = from.read_buf(bytes) => read,
            };
            if self.flow()? == Flow::Hold {
                self.control.holds.store(true, Ordering::SeqCst);
            }
            // Bytes that were read while the weather changed are subject to the new weather.
            let passes = self.settled().await? == Flow::Pass;
            let ended = !matches!(read, Ok(count) if count > 0);
            match (ended, passes) {
                (false, true) => return Ok(()),
                (false, false) => bytes.truncate(length),
                (true, true) => return Err(End::Closed),
                // A black hole hides the end of the other side, too.
                (true, false) => self.weather.changed().await.map_err(|_| End::Closed)?,
            }
            self.swallowed = true;
        }
    }

    /// Waits while bytes are held.
    async fn settled(&mut self) -> Result<Flow, End> {
        loop {
            match self.flow()? {
                Flow::Hold => self.weather.changed().await.map_err(|_| End::Closed)?,
                flow => return Ok(flow),
            }
        }
    }

    /// Returns what happens to bytes now.
    fn flow(&mut self) -> Result<Flow, End> {
        let weather = self.weather.borrow_and_update();
        let lane = (self.direction)(&weather);
        let flow = if weather.silences(self.connection) {
            Flow::Swallow
        } else if lane.held == Some(self.connection) {
            Flow::Hold
        } else {
            lane.flow
        };
        // A stream without the bytes that were swallowed cannot continue.
        if weather.resets != self.resets || flow == Flow::Pass && self.swallowed {
            return Err(End::Reset);
        }
        Ok(flow)
    }
}

pub(super) async fn serve(mut client: TcpStream, number: u64, control: Arc<Control>) {
    let mut requests = Link::new(&control, number, |weather| &weather.requests);
    let replies = Link::new(&control, number, |weather| &weather.replies);
    let target = Arc::clone(&control.weather.borrow().target);
    let Ok(mut server) = TcpStream::connect(&*target).await else {
        // A black hole hides the end of the server.
        while requests.settled().await == Ok(Flow::Swallow)
            && requests.weather.changed().await.is_ok()
        {}
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);

    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let dialogue = Mutex::new(begun(&[]));
    let dialogue = || dialogue.lock().unwrap_or_else(PoisonError::into_inner);
    let is_begun = AtomicBool::new(false);
    let request_is_lost = |message: &[u8]| {
        let request = dialogue().sent(message);
        control.request_is_lost(&request)
    };
    let reply_is_lost = |message: &[u8]| {
        let meaning = dialogue().received(message);
        matches!(meaning, Meaning::Answer(request) if control.reply_is_lost(&request))
    };

    let towards_server = async {
        let (deliver, deliveries) = mpsc::unbounded_channel();
        let writing = write_deliveries(deliveries, to_server, &control, requests.direction);
        let scan = |bytes: &[u8]| {
            if !is_begun.fetch_or(!bytes.is_empty(), Ordering::Relaxed) {
                *dialogue() = begun(bytes);
            }
            dialogue().scan_request(bytes)
        };
        let pass = |bytes| (bytes, false);
        let reading = pump(requests, from_client, deliver, scan, request_is_lost, pass);
        tokio::join!(reading, writing).0
    };
    let towards_client = async {
        let (deliver, deliveries) = mpsc::unbounded_channel();
        let writing = write_deliveries(deliveries, to_client, &control, replies.direction);
        let pass = |bytes| control.replies_pass(bytes);
        let scan = |bytes: &[u8]| dialogue().scan_reply(bytes);
        let reading = pump(replies, from_server, deliver, scan, reply_is_lost, pass);
        let (end, mut to_client) = tokio::join!(reading, writing);
        if end == End::Closed {
            let _ = to_client.shutdown().await;
        }
        end
    };
    // When one direction ends, the other one ends, too.
    let end = tokio::select! {
        end = towards_server => end,
        end = towards_client => end,
    };
    if end == End::Reset {
        let _ = client.set_zero_linger();
    }
}

/// Takes the next whole message from `bytes`. Bytes of no known protocol pass unchanged, and set `foreign`.
fn next_message(
    bytes: &mut Vec<u8>,
    foreign: &mut bool,
    scan: impl Fn(&[u8]) -> Scan,
) -> Option<Vec<u8>> {
    let end = match scan(bytes) {
        _ if *foreign => bytes.len(),
        Scan::Partial => return None,
        Scan::Whole(end) => end,
        Scan::Foreign => {
            *foreign = true;
            bytes.len()
        }
    };
    (end > 0).then(|| bytes.drain(..end).collect())
}

/// Passes the messages of one direction on, until one `is_lost`. `pass` tells how many of the next bytes still pass, and whether a
/// cut follows.
async fn pump(
    mut link: Link<'_>,
    mut from: ReadHalf<'_>,
    deliver: mpsc::UnboundedSender<Delivery>,
    scan: impl Fn(&[u8]) -> Scan,
    is_lost: impl Fn(&[u8]) -> bool,
    pass: impl Fn(usize) -> (usize, bool),
) -> End {
    let mut bytes = Vec::new();
    let mut foreign = false;
    loop {
        if let Err(end) = link.read(&mut from, &mut bytes).await {
            return end;
        }
        let arrival = link.arrival();
        let mut passing = Vec::new();
        let mut lost = false;
        while !lost && let Some(message) = next_message(&mut bytes, &mut foreign, &scan) {
            lost = !foreign && is_lost(&message);
            if !lost {
                passing.extend(message);
            }
        }
        let (count, cut) = pass(passing.len());
        passing.truncate(count);
        if deliver.send((arrival, passing)).is_err() || lost || cut {
            return End::Closed;
        }
    }
}

/// Delivers in order, to the last byte that passed before a cut.
async fn write_deliveries<'a>(
    mut deliveries: mpsc::UnboundedReceiver<Delivery>,
    mut to: WriteHalf<'a>,
    control: &Control,
    direction: Direction,
) -> WriteHalf<'a> {
    let mut weather = control.weather.subscribe();
    let before = direction(&weather.borrow()).half_closes;
    let mut open = true;
    loop {
        let half_closed = async {
            weather
                .wait_for(|weather| direction(weather).half_closes != before)
                .await
                .is_ok()
        };
        let delivery = tokio::select! {
            biased;
            _ = half_closed, if open => {
                let _ = to.shutdown().await;
                open = false;
                continue;
            }
            delivery = deliveries.recv() => delivery,
        };
        let Some((arrival, bytes)) = delivery else {
            break;
        };
        tokio::time::sleep_until(arrival).await;
        if open && to.write_all(&bytes).await.is_err() {
            break;
        }
    }
    to
}
