//! Records in a time-out who holds the lock.
//!
//! Programs match the three fields of `LockError::Timeout`, so a fourth would break them. Stores
//! count the rest of a lease in milliseconds. The nanoseconds of `remaining` therefore carry a
//! number, under which the holder is remembered for a while.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::info::Holder;

/// How many holders are remembered.
const MOST: usize = 1_024;
/// The numbers of holders, which begin anew after the last.
const NUMBERS: u32 = 900_000;

/// The holder of a lock that another call wanted: the number under which it is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakenBy(u32);

struct Remembered {
    number: u32,
    /// The client whose call waited.
    client: Uuid,
    /// The fencing token of the hold, if the holder is a call of that client.
    own: Option<u64>,
    key: String,
    at: Instant,
    /// The rest of the lease at that time.
    ttl: Duration,
    holder: Holder,
}

#[derive(Default)]
struct Memory {
    last: u32,
    holders: VecDeque<Remembered>,
}

fn memory() -> MutexGuard<'static, Memory> {
    static MEMORY: Mutex<Memory> = Mutex::new(Memory {
        last: 0,
        holders: VecDeque::new(),
    });
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remembered<T>(number: u32, read: impl FnOnce(&Remembered) -> T) -> Option<T> {
    let memory = memory();
    let mut known = memory.holders.iter();
    known.find(|known| known.number == number).map(read)
}

/// Removes the holder.
pub(crate) fn whole_millis(remaining: Duration) -> Duration {
    let nanos = remaining.subsec_nanos();
    Duration::new(remaining.as_secs(), nanos - nanos % 1_000_000)
}

impl TakenBy {
    /// Remembers a holder and the rest of its lease, for calls of this client.
    pub(crate) fn remember(
        client: Uuid,
        key: &str,
        ttl: Duration,
        holder: Holder,
        own: Option<u64>,
    ) -> Self {
        let mut memory = memory();
        memory.last = (memory.last + 1) % NUMBERS;
        let number = memory.last;
        memory.holders.push_back(Remembered {
            number,
            client,
            own,
            key: key.to_owned(),
            at: Instant::now(),
            ttl,
            holder,
        });
        if memory.holders.len() > MOST {
            memory.holders.pop_front();
        }
        Self(number)
    }

    /// Returns the holder of this lock and the rest of its lease, if this client learned them within this time. `own` is
    /// the token of a hold of this client.
    pub(crate) fn recent(
        client: Uuid,
        key: &str,
        own: Option<u64>,
        within: Duration,
    ) -> Option<(Self, Duration)> {
        let memory = memory();
        let now = Instant::now();
        let age = |known: &Remembered| now.saturating_duration_since(known.at);
        let recent = memory.holders.iter().rev();
        let mut recent = recent.take_while(|known| age(known) < within);
        let is_it =
            |known: &&Remembered| (known.client, known.own) == (client, own) && known.key == key;
        let known = recent.find(is_it)?;
        let left = known.ttl.saturating_sub(age(known));
        Some((Self(known.number), left))
    }

    /// Encodes the holder in the rest of its lease, which never grows by that.
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

    /// Returns the holder, if it is still remembered.
    pub(crate) fn holder(self) -> Option<Holder> {
        remembered(self.0, |known| known.holder.clone())
    }

    /// Returns the part of a message that names the holder.
    pub(super) fn advice(remaining: Option<Duration>) -> String {
        let advice = |known: &Remembered| {
            if known.own.is_some() {
                let hold = known.holder.hold();
                format!(
                    "; it is held by this client itself{hold}: if this call runs inside that hold, enter it in \
                     `guard.scope(…)`, or in a spawned task by `in_current_scope()`"
                )
            } else {
                format!("; it is held by {}", known.holder)
            }
        };
        let by = Self::of(remaining);
        by.and_then(|by| remembered(by.0, advice))
            .unwrap_or_default()
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

    fn holder(pid: u32) -> Holder {
        Holder {
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
        }
    }

    #[test]
    fn a_holder_is_remembered_until_many_others_came() {
        let (client, key) = (Uuid::new_v4(), "order:42");
        let recent = |client, own| TakenBy::recent(client, key, own, Duration::from_secs(9));
        assert_eq!(recent(client, None), None);
        let remember =
            |pid, own| TakenBy::remember(client, key, Duration::from_secs(9), holder(pid), own);
        let by = remember(4711, None);
        let known = recent(client, None);
        assert!(known.is_some_and(|(known, left)| known == by && !left.is_zero()));
        assert_eq!(TakenBy::recent(client, key, None, Duration::ZERO), None);
        assert_eq!(recent(client, Some(1)), None);
        assert_eq!(recent(Uuid::new_v4(), None), None);
        let remaining = Some(by.mark(Duration::from_secs(1)));
        assert_eq!(
            TakenBy::advice(remaining),
            "; it is held by `billing` on `node-3` (pid 4711), in `orders::pay`, for 12.3 s"
        );
        let own = remember(1, Some(1));
        assert!(recent(client, Some(1)).is_some_and(|(known, _)| known == own));
        assert_eq!(recent(client, Some(2)), None, "the next hold");
        let own = own.mark(Duration::from_secs(1));
        assert_eq!(
            TakenBy::advice(Some(own)),
            "; it is held by this client itself, in `orders::pay`, for 12.3 s: if this call runs inside that \
             hold, enter it in `guard.scope(…)`, or in a spawned task by `in_current_scope()`"
        );
        for pid in 0..1_024 {
            remember(pid, None);
        }
        assert_eq!(by.holder(), None);
        assert_eq!(TakenBy::advice(remaining), "");
    }
}
