//! The orders to a proxy, shared by its handle and its connections.

use std::fmt;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use std::time::Duration;

use tokio::sync::watch;

use super::Request;

/// What happens to the bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// They wait, and pass later.
    Hold,
    /// They are lost.
    Swallow,
}

/// The lasting state of the network.
#[derive(Clone, Debug)]
pub(super) struct Weather {
    /// Where new connections lead.
    pub(super) target: Arc<str>,
    pub(super) requests: Lane,
    pub(super) replies: Lane,
    pub(super) refuse: bool,
    /// Connections from before the last reset are cut.
    pub(super) resets: u64,
    /// Connections with smaller numbers swallow everything.
    pub(super) silent_before: u64,
    /// Connections with odd numbers swallow everything.
    pub(super) every_second_is_silent: bool,
}

impl Weather {
    /// Whether the connection with this number swallows everything.
    pub(super) fn silences(&self, connection: u64) -> bool {
        connection < self.silent_before
            || (self.every_second_is_silent && !connection.is_multiple_of(2))
    }
}

/// One direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    pub(super) flow: Flow,
    pub(super) delay: Duration,
    /// The bytes of this connection wait, too.
    pub(super) held: Option<u64>,
    /// Connections from before the last half-close get no more bytes this way.
    pub(super) half_closes: u64,
}

/// Which messages are lost.
type Filter = Box<dyn Fn(&Request) -> bool + Send>;

/// Faults that wear off once they have struck, and the record of what passed.
#[derive(Default)]
struct Faults {
    lose_reply: Option<Loss>,
    lose_request: Option<Loss>,
    cut_replies_after: Option<usize>,
    replies_lost: u64,
    requests_lost: u64,
    requests: Vec<Request>,
}

struct Loss {
    left: u64,
    matches: Filter,
}

impl Loss {
    fn strikes(loss: &mut Option<Self>, request: &Request) -> bool {
        let Some(armed) = loss else { return false };
        if armed.left == 0 || !(armed.matches)(request) {
            return false;
        }
        armed.left -= 1;
        true
    }
}

#[derive(Debug)]
pub(super) struct Control {
    pub(super) weather: watch::Sender<Weather>,
    faults: Mutex<Faults>,
    connections: AtomicU64,
    /// Whether held bytes have arrived.
    pub(super) holds: AtomicBool,
    keeps_requests: bool,
}

impl Control {
    pub(super) fn new(target: &str, keeps_requests: bool) -> Self {
        Self {
            weather: watch::Sender::new(Weather {
                target: target.into(),
                requests: Lane::default(),
                replies: Lane::default(),
                refuse: false,
                resets: 0,
                silent_before: 0,
                every_second_is_silent: false,
            }),
            faults: Mutex::default(),
            connections: AtomicU64::new(0),
            holds: AtomicBool::new(false),
            keeps_requests,
        }
    }

    /// Returns the number of a new connection.
    pub(super) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::SeqCst)
    }

    /// How many connections have begun.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    /// Restores a good network.
    pub(super) fn clear(&self) {
        {
            let mut faults = self.faults();
            faults.lose_reply = None;
            faults.lose_request = None;
            faults.cut_replies_after = None;
        }
        self.weather.send_modify(|weather| {
            for lane in [&mut weather.requests, &mut weather.replies] {
                lane.flow = Flow::Pass;
                lane.held = None;
                lane.delay = Duration::ZERO;
            }
            weather.refuse = false;
            weather.silent_before = 0;
            weather.every_second_is_silent = false;
        });
    }

    /// Loses the next `left` replies.
    pub(super) fn lose_replies(&self, left: u64, matches: Filter) {
        self.faults().lose_reply = Some(Loss { left, matches });
    }

    /// Loses the next `left` requests.
    pub(super) fn lose_requests(&self, left: u64, matches: Filter) {
        self.faults().lose_request = Some(Loss { left, matches });
    }

    pub(super) fn cut_replies_after(&self, bytes: usize) {
        self.faults().cut_replies_after = Some(bytes);
    }

    /// Records a request, and returns whether it gets lost.
    pub(super) fn request_is_lost(&self, request: &Request) -> bool {
        let mut faults = self.faults();
        if self.keeps_requests {
            faults.requests.push(request.clone());
        }
        let lost = Loss::strikes(&mut faults.lose_request, request);
        faults.requests_lost += u64::from(lost);
        lost
    }

    /// Returns whether the reply to this request gets lost.
    pub(super) fn reply_is_lost(&self, request: &Request) -> bool {
        let mut faults = self.faults();
        let lost = Loss::strikes(&mut faults.lose_reply, request);
        faults.replies_lost += u64::from(lost);
        lost
    }

    /// Returns how many of the next `bytes` towards the client still pass, and whether the cut
    /// follows.
    pub(super) fn replies_pass(&self, bytes: usize) -> (usize, bool) {
        pass_until_cut(&mut self.faults().cut_replies_after, bytes)
    }

    pub(super) fn replies_lost(&self) -> u64 {
        self.faults().replies_lost
    }

    pub(super) fn requests_lost(&self) -> u64 {
        self.faults().requests_lost
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.faults().requests.clone()
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pass_until_cut(cut: &mut Option<usize>, bytes: usize) -> (usize, bool) {
    match cut {
        Some(left) if bytes > 0 && bytes >= *left => (cut.take().unwrap_or(bytes), true),
        Some(left) => {
            *left -= bytes;
            (bytes, false)
        }
        None => (bytes, false),
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Faults")
            .field("replies_lost", &self.replies_lost)
            .field("requests_lost", &self.requests_lost)
            .finish_non_exhaustive()
    }
}
