//! Decides whether tokens continue from the fences of the connected server.
//!
//! After a failover, a fence may be older than the last token that was granted. Tokens then start from the server's time.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{RedisError, RedisWrite, ToRedisArgs};

use crate::{clock::ClientClock, lease::Time};

/// A lower bound for the server's time (µs). A smaller token was not counted from the server's time.
const NO_TIME: u64 = 1_000_000_000_000;
/// How long a write is recent. A cluster takes longer to demote a master and elect it again, unless an operator orders
/// that or the cluster's node timeout is shorter.
const RECENT: Duration = Duration::from_millis(250);

/// The history of a server's data, as one connection knows it.
pub(super) struct History {
    clock: ClientClock,
    start: Mutex<Start>,
    /// When the last request that only a master executes was sent, in nanoseconds. Zero: never.
    wrote_at: AtomicU64,
}

/// The state of the server when the connection was opened, or when the server reported its promotion.
struct Start {
    /// The server's time (µs). A failover, or a start from an old save, may bring back older tokens. Such a server is
    /// reached over a new connection, except for a former master whose connections stayed open while it was a replica.
    micros: u64,
    /// The replication id. It changes when the server is promoted, and for example when its first replica attaches.
    replication_id: Option<Arc<str>>,
    /// When slots of a cluster arrived at the server, if it has not reported its time since then. Their fences may lack
    /// grants of the former master.
    slots_at: Option<Time>,
}

impl History {
    pub(super) fn new(clock: ClientClock) -> Self {
        Self {
            clock,
            start: Mutex::new(Start {
                micros: NO_TIME,
                replication_id: None,
                slots_at: None,
            }),
            wrote_at: AtomicU64::new(0),
        }
    }

    fn start(&self) -> MutexGuard<'_, Start> {
        self.start.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the state of the server when the connection was opened, as far as the server shows it.
    pub(super) fn record_start(&self, micros: Option<u64>, replication_id: Option<String>) {
        let mut start = self.start();
        start.micros = start.micros.max(micros.unwrap_or(NO_TIME));
        start.replication_id = replication_id.map(Arc::from);
    }

    /// Records the state of the server if the error reports it, to a request that was sent at this time.
    pub(super) fn record_promotion(&self, error: &RedisError, sent_at: Time) {
        let Some(report) = error.detail().filter(|_| is_promotion(error)) else {
            return;
        };
        let (micros, id) = report.split_once(' ').unwrap_or((report, ""));
        let id = Some(id.to_owned()).filter(|id| identifies_run(id));
        self.record_start(micros.parse().ok(), id);
        self.end_arrival(sent_at);
    }

    /// Records that slots of a cluster arrive at the server. Its next grant takes its time into account.
    pub(super) fn record_slots(&self) {
        let mut start = self.start();
        // Under the lock: a request that was sent later has asked for the time.
        start.slots_at = Some(self.now());
    }

    /// Ends the arrival of slots, if the server replied to a request that was sent since then.
    fn end_arrival(&self, sent_at: Time) {
        let mut start = self.start();
        start.slots_at = start.slots_at.filter(|arrived| *arrived >= sent_at);
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Records that the server executed a write that was sent at this time. The write is then recent for [`RECENT`]. If
    /// the write did not compare the replication id, it counts only if an earlier write was recent at that time.
    pub(super) fn record_write(&self, sent_at: Time, is_compared: bool) {
        if is_compared {
            // Without the permission `+time`, the server executes the request and reports no time.
            self.end_arrival(sent_at);
        }
        if is_compared || self.is_recent(sent_at) {
            self.wrote_at.fetch_max(sent_at.nanos(), Ordering::Relaxed);
        }
    }

    /// Returns whether a write was sent shortly before this time.
    fn is_recent(&self, at: Time) -> bool {
        let wrote_at = self.wrote_at.load(Ordering::Relaxed);
        wrote_at > 0 && at.since(Time::from_nanos(wrote_at)) < RECENT
    }

    /// Returns the least token for a request that is sent now.
    pub(super) fn least_token(&self) -> LeastToken {
        let is_recent = self.is_recent(self.now());
        let start = self.start();
        let id = start.replication_id.clone();
        LeastToken {
            micros: start.micros,
            unless_id: if start.slots_at.is_some() {
                // No server has this id, so it reports its time.
                id.map(|_| Arc::from("slots"))
            } else {
                id.filter(|_| !is_recent)
            },
        }
    }
}

/// Returns whether the server reports that it was promoted. The request did nothing, and is repeated.
pub(super) fn is_promotion(error: &RedisError) -> bool {
    error.code() == Some("PROMOTED")
}

/// The least token that a request may be granted: the argument of `least_token` in `library.lua`.
#[derive(Debug, PartialEq)]
pub(super) struct LeastToken {
    micros: u64,
    /// If the server has another replication id, it reports that it was promoted.
    unless_id: Option<Arc<str>>,
}

impl ToRedisArgs for LeastToken {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        match &self.unless_id {
            None => self.micros.write_redis_args(out),
            Some(id) => out.write_arg_fmt(format_args!("{}:{id}", self.micros)),
        }
    }
}

/// Returns whether this identifies a run. Some services hide the `run_id`.
pub(super) fn identifies_run(run_id: &str) -> bool {
    let mut characters = run_id.chars();
    let first = characters.next();
    characters.any(|character| Some(character) != first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[derive(Default)]
    struct Given(Mutex<Duration>);

    impl Clock for Given {
        fn elapsed(&self) -> Duration {
            *self.0.lock().expect("no panic")
        }
    }

    fn error(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
        let error = value.and_then(redis::Value::extract_error);
        error.expect_err("an error")
    }

    #[test]
    fn the_replication_id_is_compared_unless_the_server_was_a_master_a_moment_ago() {
        let clock = Arc::new(Given(Mutex::new(Duration::from_secs(9))));
        let history = History::new(ClientClock::given(Arc::clone(&clock) as Arc<dyn Clock>));
        let written = || history.least_token().to_redis_args();
        assert_eq!(written(), [b"1000000000000"], "not set up");
        history.record_start(Some(1_700_000_000_000_000), Some("4c1d".to_owned()));
        assert_eq!(written(), [b"1700000000000000:4c1d"]);
        history.record_write(history.now(), false);
        assert_eq!(written(), [b"1700000000000000:4c1d"], "not compared");
        history.record_write(history.now(), true);
        assert_eq!(written(), [b"1700000000000000"]);
        *clock.0.lock().expect("no panic") += RECENT;
        assert_eq!(written(), [b"1700000000000000:4c1d"]);
        // The reply to an older request arrives last.
        history.record_write(Time::from_nanos(1), true);
        assert_eq!(written(), [b"1700000000000000:4c1d"]);
    }

    #[test]
    fn a_promotion_replaces_the_replication_id_and_never_lowers_the_least_token() {
        let history = History::new(ClientClock::default());
        history.record_start(Some(1_700_000_000_000_000), Some("4c1d".to_owned()));
        let report = |line: &str| history.record_promotion(&error(line), history.now());
        let written = || history.least_token().to_redis_args();
        report("READONLY 1800000000000000 77aa");
        assert_eq!(written(), [b"1700000000000000:4c1d"]);
        report("PROMOTED 1800000000000000 77aa");
        assert_eq!(written(), [b"1800000000000000:77aa"]);
        report("PROMOTED 1600000000000000 4c1d");
        assert_eq!(written(), [b"1800000000000000:4c1d"]);
        report("PROMOTED later");
        assert_eq!(written(), [b"1800000000000000"], "unreadable");
    }

    #[test]
    fn slots_that_arrive_ask_for_the_time_even_after_a_recent_write() {
        let clock = Arc::new(Given(Mutex::new(Duration::from_secs(9))));
        let history = History::new(ClientClock::given(Arc::clone(&clock) as Arc<dyn Clock>));
        let written = || history.least_token().to_redis_args();
        history.record_slots();
        assert_eq!(written(), [b"1000000000000"], "without an id");
        history.record_start(Some(1_700_000_000_000_000), Some("4c1d".to_owned()));
        let before = history.now();
        history.record_slots();
        let pass = || *clock.0.lock().expect("no panic") += Duration::from_millis(1);
        pass();
        history.record_write(before, true);
        history.record_write(history.now(), false);
        assert_eq!(written(), [b"1700000000000000:slots"]);
        let promoted = error("PROMOTED 1800000000000000 4c1d");
        history.record_promotion(&promoted, before);
        assert_eq!(written(), [b"1800000000000000:slots"], "of before");
        history.record_promotion(&promoted, history.now());
        assert_eq!(written(), [b"1800000000000000"]);
        history.record_slots();
        pass();
        history.record_write(history.now(), true);
        assert_eq!(written(), [b"1800000000000000"], "without the time");
    }

    #[test]
    fn what_is_blanked_out_is_no_name() {
        assert!(identifies_run("0c53f9e2"));
        for blank in ["", "0", "0000000000"] {
            assert!(!identifies_run(blank), "{blank}");
        }
    }
}
