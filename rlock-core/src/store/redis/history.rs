//! Decides whether tokens continue from the fences of the connected server.
//!
//! After a failover, a fence may be older than the last token that was granted. Tokens then start from the server's time.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{RedisWrite, ToRedisArgs};

use crate::{clock::ClientClock, lease::Time};

/// A lower bound for the server's time (µs). A smaller token was not counted from the server's time.
const NO_TIME: u64 = 1_000_000_000_000;
/// The time in which a cluster cannot demote a master and elect it again. The election alone takes 500 ms.
const RECENT: Duration = Duration::from_millis(250);

/// The history of a server's data, as one connection knows it.
pub(super) struct History {
    clock: ClientClock,
    start: OnceLock<Start>,
    /// When the last request that only a master executes was sent, in nanoseconds. Zero: never.
    wrote_at: AtomicU64,
}

/// The state of the server when the connection was opened.
struct Start {
    /// The server's time (µs). A failover, or a start from an old save, may bring back older tokens. Such a server can
    /// only be reached over a new connection, unless it was a master before.
    micros: Option<u64>,
    /// The replication id, which changes when the server is promoted, among other occasions.
    replication_id: Option<String>,
}

impl History {
    pub(super) fn new(clock: ClientClock) -> Self {
        Self {
            clock,
            start: OnceLock::new(),
            wrote_at: AtomicU64::new(0),
        }
    }

    /// Records the state of the server when the connection was opened, as far as the server shows it.
    pub(super) fn record_start(&self, micros: Option<u64>, replication_id: Option<String>) {
        let start = Start {
            micros,
            replication_id,
        };
        // A connection is set up once.
        let _ = self.start.set(start);
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Records that a master executed a request that was sent at this time.
    pub(super) fn record_write(&self, sent_at: Time) {
        self.wrote_at.fetch_max(sent_at.nanos(), Ordering::Relaxed);
    }

    /// Returns the least token for a request that is sent now.
    pub(super) fn least_token(&self) -> LeastToken<'_> {
        let start = self.start.get();
        let micros = start.and_then(|start| start.micros);
        let wrote_at = self.wrote_at.load(Ordering::Relaxed);
        let is_recent = || wrote_at > 0 && self.now().since(Time::from_nanos(wrote_at)) < RECENT;
        let replication_id = start.and_then(|start| start.replication_id.as_deref());
        LeastToken {
            micros: micros.unwrap_or(NO_TIME),
            unless_id: replication_id.filter(|_| !is_recent()),
        }
    }
}

/// The least token that a request may be granted: the argument of `least_token` in `library.lua`.
#[derive(Debug, PartialEq)]
pub(super) struct LeastToken<'a> {
    micros: u64,
    /// If the server has another replication id, the least token is the server's time.
    unless_id: Option<&'a str>,
}

impl ToRedisArgs for LeastToken<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        match self.unless_id {
            None => self.micros.write_redis_args(out),
            Some(id) => out.write_arg_fmt(format_args!("{}:{id}", self.micros)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Given(Mutex<Duration>);

    impl Clock for Given {
        fn elapsed(&self) -> Duration {
            *self.0.lock().expect("no panic")
        }
    }

    #[test]
    fn the_replication_id_is_compared_unless_the_server_was_a_master_a_moment_ago() {
        let clock = Arc::new(Given(Mutex::new(Duration::from_secs(9))));
        let history = History::new(ClientClock::given(Arc::clone(&clock) as Arc<dyn Clock>));
        let written = || history.least_token().to_redis_args();
        assert_eq!(written(), [b"1000000000000"], "not set up");
        history.record_start(Some(1_700_000_000_000_000), Some("4c1d".to_owned()));
        assert_eq!(written(), [b"1700000000000000:4c1d"]);
        history.record_write(history.now());
        assert_eq!(written(), [b"1700000000000000"]);
        *clock.0.lock().expect("no panic") += RECENT;
        assert_eq!(written(), [b"1700000000000000:4c1d"]);
        // The reply to an older request arrives last.
        history.record_write(Time::from_nanos(1));
        assert_eq!(written(), [b"1700000000000000:4c1d"]);
    }
}
