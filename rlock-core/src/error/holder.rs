//! Records in a time-out who holds the lock.
//!
//! Programs match the three fields of `LockError::Timeout`, so a fourth would break them. Stores
//! count the rest of a lease in milliseconds. The nanoseconds of `remaining` therefore carry a
//! number, under which a holder in another process is remembered for a while.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::info::Holder;

/// How many holders in other processes are remembered.
const MOST: usize = 1_024;
/// How long a holder counts for other calls that wait for the same lock.
const RECENT: Duration = Duration::from_secs(1);
/// The numbers of holders, which begin anew after the last.
const NUMBERS: u32 = 900_000;

/// The holder of a lock that another call wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenBy {
    /// The client that waited.
    ThisClient,
    /// Another client of the same process.
    ThisProcess,
    /// A client of another process, with the number under which it is remembered.
    Other(u32),
}

struct Remembered {
    number: u32,
    /// The client that asked.
    client: Uuid,
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

fn remembered(number: u32) -> Option<Holder> {
    let memory = memory();
    let mut known = memory.holders.iter();
    let known = known.find(|known| known.number == number)?;
    Some(known.holder.clone())
}

/// Removes the holder.
pub(crate) fn whole_millis(remaining: Duration) -> Duration {
    let nanos = remaining.subsec_nanos();
    Duration::new(remaining.as_secs(), nanos - nanos % 1_000_000)
}

impl TakenBy {
    /// Remembers a holder that this client has asked, and the rest of its lease.
    pub(crate) fn remember(client: Uuid, key: &str, ttl: Duration, holder: Holder) -> Self {
        let mut memory = memory();
        memory.last = (memory.last + 1) % NUMBERS;
        let number = memory.last;
        memory.holders.push_back(Remembered {
            number,
            client,
            key: key.to_owned(),
            at: Instant::now(),
            ttl,
            holder,
        });
        if memory.holders.len() > MOST {
            memory.holders.pop_front();
        }
        Self::Other(number)
    }

    /// Returns the holder of this lock and the rest of its lease, if this client has asked it just now.
    pub(crate) fn recent(client: Uuid, key: &str) -> Option<(Self, Duration)> {
        let memory = memory();
        let recent = memory.holders.iter().rev();
        let mut recent = recent.take_while(|known| known.at.elapsed() < RECENT);
        let known = recent.find(|known| known.client == client && known.key == key)?;
        let left = known.ttl.saturating_sub(known.at.elapsed());
        Some((Self::Other(known.number), left))
    }

    /// Encodes the holder in the rest of its lease, which never grows by that.
    pub(crate) fn mark(self, remaining: Duration) -> Duration {
        let mark = match self {
            Self::ThisClient => 1,
            Self::ThisProcess => 2,
            Self::Other(number) => 3 + number,
        };
        let least = Duration::from_millis(1);
        whole_millis(remaining)
            .max(least)
            .saturating_sub(Duration::from_nanos(mark.into()))
    }

    pub(crate) fn of(remaining: Option<Duration>) -> Option<Self> {
        match 1_000_000 - remaining?.subsec_nanos() % 1_000_000 {
            1 => Some(Self::ThisClient),
            2 => Some(Self::ThisProcess),
            mark if mark < 1_000_000 => Some(Self::Other(mark - 3)),
            _ => None,
        }
    }

    /// Returns the holder for a span.
    pub(crate) fn name(self) -> String {
        match self {
            Self::ThisClient => "this client".to_owned(),
            Self::ThisProcess => "another client of this process".to_owned(),
            Self::Other(number) => {
                remembered(number).map_or_else(String::new, |holder| holder.to_string())
            }
        }
    }

    /// Returns the holder in another process, if it is still remembered.
    pub(super) fn holder(remaining: Option<Duration>) -> Option<Holder> {
        let Some(Self::Other(number)) = Self::of(remaining) else {
            return None;
        };
        remembered(number)
    }

    /// Returns the part of a message that names the holder.
    pub(super) fn advice(remaining: Option<Duration>) -> String {
        match Self::of(remaining) {
            Some(Self::ThisClient) => {
                "; it is held by this client itself: a call inside that hold enters it in `guard.scope(…)`, \
                 a spawned task by `in_current_scope()`"
                    .to_owned()
            }
            Some(Self::ThisProcess) => {
                "; it is held by another client of this process: a call inside that hold enters it by that \
                 client alone, in `guard.scope(…)`, or in a spawned task by `in_current_scope()`"
                    .to_owned()
            }
            Some(Self::Other(_)) => Self::holder(remaining)
                .map_or_else(String::new, |holder| format!("; it is held by {holder}")),
            None => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_takes_less_than_a_millisecond() {
        for remaining in [1, 30_000].map(Duration::from_millis) {
            for by in [
                TakenBy::ThisClient,
                TakenBy::ThisProcess,
                TakenBy::Other(0),
                TakenBy::Other(NUMBERS - 1),
            ] {
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
        assert_eq!(TakenBy::recent(client, key), None);
        let by = TakenBy::remember(client, key, Duration::from_secs(9), holder(4711));
        let recent = TakenBy::recent(client, key);
        assert!(recent.is_some_and(|(known, left)| known == by && !left.is_zero()));
        assert_eq!(TakenBy::recent(Uuid::new_v4(), key), None);
        let remaining = Some(by.mark(Duration::from_secs(1)));
        assert_eq!(
            TakenBy::advice(remaining),
            "; it is held by `billing` on `node-3` (pid 4711), in `orders::pay`, for 12.3 s"
        );
        for pid in 0..1_024 {
            TakenBy::remember(client, key, Duration::ZERO, holder(pid));
        }
        assert_eq!(TakenBy::holder(remaining), None);
        assert_eq!(TakenBy::advice(remaining), "");
    }
}
