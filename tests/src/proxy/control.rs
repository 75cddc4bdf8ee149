//! What the proxy has been told to do, shared by its handle and its connections.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
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
#[derive(Clone, Debug, Default)]
pub(super) struct Weather {
    pub(super) requests: Flow,
    pub(super) replies: Flow,
    pub(super) delay: Duration,
    pub(super) refuse: bool,
    /// Connections from before the last reset are cut.
    pub(super) resets: u64,
    /// Connections from before the last half-close get no more bytes.
    pub(super) half_closes: u64,
}

/// Which messages are lost.
type Filter = Box<dyn Fn(&Request) -> bool + Send>;

/// Faults that wear off once they have struck, and the record of what passed.
#[derive(Default)]
struct Faults {
    lose_reply: Option<Loss>,
    lose_request: Option<Loss>,
    cut_after: Option<usize>,
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
        let strikes = armed.left > 0 && (armed.matches)(request);
        if strikes {
            armed.left -= 1;
        }
        strikes
    }
}

#[derive(Debug)]
pub(super) struct Control {
    pub(super) weather: watch::Sender<Weather>,
    faults: Mutex<Faults>,
}

impl Control {
    pub(super) fn new() -> Self {
        Self {
            weather: watch::Sender::new(Weather::default()),
            faults: Mutex::default(),
        }
    }

    /// Back to a good network.
    pub(super) fn clear(&self) {
        {
            let mut faults = self.faults();
            faults.lose_reply = None;
            faults.lose_request = None;
            faults.cut_after = None;
        }
        self.weather.send_modify(|weather| {
            weather.requests = Flow::Pass;
            weather.replies = Flow::Pass;
            weather.delay = Duration::ZERO;
            weather.refuse = false;
        });
    }

    pub(super) fn lose_replies(&self, left: u64, matches: Filter) {
        self.faults().lose_reply = Some(Loss { left, matches });
    }

    pub(super) fn lose_requests(&self, left: u64, matches: Filter) {
        self.faults().lose_request = Some(Loss { left, matches });
    }

    pub(super) fn cut_after(&self, bytes: usize) {
        self.faults().cut_after = Some(bytes);
    }

    /// Notes a request and says whether it gets lost.
    pub(super) fn request_is_lost(&self, request: &Request) -> bool {
        let mut faults = self.faults();
        faults.requests.push(request.clone());
        let lost = Loss::strikes(&mut faults.lose_request, request);
        faults.requests_lost += u64::from(lost);
        lost
    }

    /// Says whether the answer to this request gets lost.
    pub(super) fn reply_is_lost(&self, request: &Request) -> bool {
        let mut faults = self.faults();
        let lost = Loss::strikes(&mut faults.lose_reply, request);
        faults.replies_lost += u64::from(lost);
        lost
    }

    /// How many of the next `bytes` towards the client still pass, and whether the cut comes then.
    pub(super) fn passes(&self, bytes: usize) -> (usize, bool) {
        if bytes == 0 {
            return (0, false);
        }
        let mut faults = self.faults();
        match &mut faults.cut_after {
            None => (bytes, false),
            Some(left) if bytes < *left => {
                *left -= bytes;
                (bytes, false)
            }
            Some(left) => {
                let last = *left;
                faults.cut_after = None;
                (last, true)
            }
        }
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

impl fmt::Debug for Faults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Faults")
            .field("replies_lost", &self.replies_lost)
            .field("requests_lost", &self.requests_lost)
            .finish_non_exhaustive()
    }
}
