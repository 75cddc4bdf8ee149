//! Records in a time-out who holds the lock, and which locks the call holds itself.
//!
//! Programs match the three fields of `LockError::Timeout`, so a fourth would break them. Stores
//! count the rest of a lease in milliseconds. The nanoseconds of `remaining` therefore carry a
//! number, under which a report is remembered for a while.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::{
    info::{Holder, LockInfo},
    owner::OwnerId,
};

/// How many holders are remembered, and how many errors.
const MOST: usize = 1_024;
/// The numbers of errors, which start again after the last.
const NUMBERS: u32 = 900_000;
/// How long the knowledge of one call serves other calls of its client.
pub(crate) const RECENT: Duration = Duration::from_secs(1);

/// The number under which the report of a time-out is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakenBy(u32);

/// The holder of a lock, as it described itself at that time.
#[derive(Debug, Clone)]
pub(crate) struct KnownHolder {
    pub(crate) owner: OwnerId,
    pub(crate) token: Option<u64>,
    pub(crate) holder: Holder,
    ttl: Duration,
    at: Instant,
}

/// A client, and the key that its calls want.
type Wanted = (Uuid, String);

struct Report {
    number: u32,
    at: Instant,
    wanted: Wanted,
    holder: Option<KnownHolder>,
    text: String,
}

struct Memory {
    last: u32,
    asked: VecDeque<(Wanted, KnownHolder)>,
    reports: VecDeque<Report>,
}

fn memory() -> MutexGuard<'static, Memory> {
    static MEMORY: Mutex<Memory> = Mutex::new(Memory {
        last: 0,
        asked: VecDeque::new(),
        reports: VecDeque::new(),
    });
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Appends an item, and forgets the oldest of too many.
fn append<T>(items: &mut VecDeque<T>, item: T) {
    items.push_back(item);
    if items.len() > MOST {
        items.pop_front();
    }
}

/// Removes the number of a report.
pub(crate) fn whole_millis(remaining: Duration) -> Duration {
    let nanos = remaining.subsec_nanos();
    Duration::new(remaining.as_secs(), nanos - nanos % 1_000_000)
}

impl KnownHolder {
    /// Returns the holder in the reply of a lock's client.
    pub(crate) fn of(info: LockInfo) -> Option<Self> {
        Some(Self {
            owner: info.owner_id()?,
            token: info.token,
            holder: info.holder?,
            ttl: info.ttl?,
            at: Instant::now(),
        })
    }

    /// Remembers the holder of a lock for the calls of this client that want it.
    pub(crate) fn remember(self, client: Uuid, key: &str) {
        let wanted = (client, key.to_owned());
        append(&mut memory().asked, (wanted, self));
    }

    /// Returns the holder that a call of this client asked for within this time.
    pub(crate) fn recent(client: Uuid, key: &str, within: Duration) -> Option<Self> {
        let memory = memory();
        let mut asked = memory.asked.iter().rev();
        let is_it = |((by, wanted), known): &&(Wanted, Self)| {
            *by == client && wanted == key && known.at.elapsed() < within
        };
        asked.find(is_it).map(|(_, known)| known.clone())
    }

    /// Returns the rest of the lease.
    pub(crate) fn left(&self) -> Duration {
        self.ttl.saturating_sub(self.at.elapsed())
    }

    fn hold(&self) -> (OwnerId, Option<u64>) {
        (self.owner, self.token)
    }
}

impl TakenBy {
    /// Remembers the report of a time-out of this client. Calls that fail for the same reason share a report.
    pub(crate) fn report(
        client: Uuid,
        key: &str,
        holder: Option<KnownHolder>,
        text: String,
    ) -> Self {
        let (wanted, at) = ((client, key.to_owned()), Instant::now());
        let hold = holder.as_ref().map(KnownHolder::hold);
        let mut memory = memory();
        let is_same = |known: &&Report| {
            known.holder.as_ref().map(KnownHolder::hold) == hold
                && known.wanted == wanted
                && known.text == text
                && known.at.elapsed() < RECENT
        };
        if let Some(known) = memory.reports.iter().rev().find(is_same) {
            return Self(known.number);
        }
        memory.last = (memory.last + 1) % NUMBERS;
        let number = memory.last;
        let report = Report {
            number,
            at,
            wanted,
            holder,
            text,
        };
        append(&mut memory.reports, report);
        Self(number)
    }

    /// Encodes the report in the rest of the lease, which does not grow.
    pub(crate) fn mark(self, remaining: Duration) -> Duration {
        let least = Duration::from_millis(1);
        whole_millis(remaining)
            .max(least)
            .saturating_sub(Duration::from_nanos(u64::from(self.0) + 1))
    }

    pub(crate) fn of(remaining: Option<Duration>) -> Option<Self> {
        let mark = 1_000_000 - remaining?.subsec_nanos() % 1_000_000;
        (mark < 1_000_000).then(|| Self(mark - 1))
    }

    /// Returns the holder, if it is known and still remembered.
    pub(crate) fn holder(self) -> Option<Holder> {
        self.read(|report| Some(report.holder.as_ref()?.holder.clone()))
    }

    /// Returns the part of a message that names the holder, and the locks that the call holds itself.
    pub(super) fn text(remaining: Option<Duration>) -> String {
        let text = |report: &Report| Some(report.text.clone());
        let text = Self::of(remaining).and_then(|report| report.read(text));
        text.unwrap_or_default()
    }

    fn read<T>(self, read: impl FnOnce(&Report) -> Option<T>) -> Option<T> {
        let memory = memory();
        let mut known = memory.reports.iter().rev();
        known.find(|known| known.number == self.0).and_then(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_takes_less_than_a_millisecond() {
        for remaining in [1, 30_000].map(Duration::from_millis) {
            for by in [TakenBy(0), TakenBy(NUMBERS - 1)] {
                let marked = by.mark(remaining + Duration::from_micros(999));
                assert_eq!(TakenBy::of(Some(marked)), Some(by));
                assert!(marked <= remaining);
                assert!(remaining < marked + Duration::from_millis(1));
                assert_eq!(TakenBy::of(Some(by.mark(Duration::ZERO))), Some(by));
            }
            assert_eq!(TakenBy::of(Some(whole_millis(remaining))), None);
        }
        assert_eq!(TakenBy::of(None), None);
    }

    fn known(pid: u32, token: u64) -> KnownHolder {
        let holder = Holder {
            service: Some("billing".to_owned()),
            version: None,
            host: "node-3".to_owned(),
            pid,
            held_for: Duration::from_millis(12_345),
            lock: None,
            function: Some("orders::pay".to_owned()),
            trace_id: None,
            waiters: 0,
            renewals: 1,
            revoked_for: None,
        };
        KnownHolder {
            owner: OwnerId::new(Uuid::max(), 7),
            token: Some(token),
            holder,
            ttl: Duration::from_secs(9),
            at: Instant::now(),
        }
    }

    // One test, because all share one memory.
    #[test]
    fn a_report_is_shared_by_equal_calls_and_remembered_until_many_others_came() {
        let (client, key) = (Uuid::new_v4(), "order:42");
        let second = Duration::from_secs(1);
        let recent = |client, within| KnownHolder::recent(client, key, within);
        assert!(recent(client, second).is_none());
        known(4711, 1).remember(client, key);
        let asked = recent(client, second).expect("it is remembered");
        assert_eq!(asked.holder, known(4711, 1).holder);
        assert!(asked.left() > second);
        assert!(recent(client, Duration::ZERO).is_none());
        assert!(recent(Uuid::new_v4(), second).is_none());

        let report =
            |client, token, text: &str| TakenBy::report(client, key, token, text.to_owned());
        let first = report(client, Some(asked), "; it is held");
        assert_eq!(report(client, Some(known(1, 1)), "; it is held"), first);
        for other in [
            report(Uuid::new_v4(), Some(known(1, 1)), "; it is held"),
            report(client, Some(known(1, 2)), "; it is held"),
            report(client, None, "; it is held"),
            report(client, Some(known(1, 1)), "; this call holds `a`"),
        ] {
            assert_ne!(other, first);
        }
        let remaining = Some(first.mark(second));
        assert_eq!(first.holder().map(|holder| holder.pid), Some(4711));
        assert_eq!(TakenBy::text(remaining), "; it is held");
        for token in 0..1_024 {
            report(client, Some(known(1, token)), "; this call holds `a`");
        }
        assert_eq!(first.holder(), None);
        assert_eq!(TakenBy::text(remaining), "");
    }
}
