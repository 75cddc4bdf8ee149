//! Witnesses of mutual exclusion: within a process, and across processes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;

use crate::server::patient;

/// Two or more inside at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The owner that entered.
    pub entered: String,
    /// The owners that were already inside.
    pub inside: Vec<String>,
}

impl fmt::Display for Overlap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} entered while {} was inside",
            self.entered,
            self.inside.join(", ")
        )
    }
}

/// Counts the owners inside, within this process. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Exclusion(Arc<Mutex<Count>>);

#[derive(Debug, Default)]
struct Count {
    inside: Vec<(u64, String)>,
    entries: u64,
    max_inside: usize,
    overlaps: Vec<Overlap>,
}

impl Exclusion {
    /// Creates a witness without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `who` is inside until the returned guard is dropped.
    #[must_use = "`who` leaves when this is dropped"]
    pub fn enter(&self, who: impl Into<String>) -> Inside {
        let who = who.into();
        let mut count = self.count();
        count.entries += 1;
        let number = count.entries;
        if !count.inside.is_empty() {
            let inside = count.inside.iter().map(|(_, name)| name.clone()).collect();
            count.overlaps.push(Overlap {
                entered: who.clone(),
                inside,
            });
        }
        count.inside.push((number, who));
        count.max_inside = count.max_inside.max(count.inside.len());
        Inside {
            witness: self.clone(),
            number,
        }
    }

    /// Returns the number of owners inside now.
    #[must_use]
    pub fn inside(&self) -> usize {
        self.count().inside.len()
    }

    /// Returns the number of entries so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.count().entries
    }

    /// Returns the largest number of owners that were inside at once.
    #[must_use]
    pub fn max_inside(&self) -> usize {
        self.count().max_inside
    }

    /// Every entry that found another holder inside.
    #[must_use]
    pub fn overlaps(&self) -> Vec<Overlap> {
        self.count().overlaps.clone()
    }

    /// Panics with the details if two owners were ever inside at once, or if no owner entered.
    pub fn assert_held(&self) {
        assert_no(&self.overlaps(), self.entries());
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An owner inside an [`Exclusion`]. Dropping it leaves.
#[derive(Debug)]
pub struct Inside {
    witness: Exclusion,
    number: u64,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.witness
            .count()
            .inside
            .retain(|(number, _)| *number != self.number);
    }
}

/// Counts the owners inside, across processes: a list of events on its own server.
///
/// Use a server that is not under test, or its faults also hit the witness. Record an entry after
/// the lock was granted, and the exit before its release. Then every recorded overlap was a real
/// one.
#[derive(Clone)]
pub struct SharedExclusion {
    connection: MultiplexedConnection,
    list: String,
}

impl SharedExclusion {
    /// Connects to the witness `name` on the server at `url`.
    pub async fn connect(url: &str, name: &str) -> Self {
        Self {
            connection: patient(url).await,
            list: format!("exclusion:{name}"),
        }
    }

    /// Records that `who` is inside until [`SharedInside::leave`].
    pub async fn enter(&self, who: &str) -> SharedInside {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{who} (process {}, entry {number})", std::process::id());
        self.note("enter", &name).await;
        SharedInside {
            witness: self.clone(),
            name,
        }
    }

    /// Records that a process is dead, so that none of its owners is inside. Call it once the
    /// process is reaped.
    pub async fn died(&self, pid: u32) {
        self.note("died", &format!("(process {pid},")).await;
    }

    /// Returns the number of entries so far.
    pub async fn entries(&self) -> u64 {
        self.events()
            .await
            .iter()
            .filter(|(event, _)| event == "enter")
            .count() as u64
    }

    /// Returns the owners that are inside now.
    pub async fn inside(&self) -> Vec<String> {
        replay(&self.events().await).0
    }

    /// Every entry that found another holder inside.
    pub async fn overlaps(&self) -> Vec<Overlap> {
        replay(&self.events().await).1
    }

    /// Panics with the details if two owners were ever inside at once, or if no owner entered.
    pub async fn assert_held(&self) {
        let events = self.events().await;
        let entries = events.iter().filter(|(event, _)| event == "enter").count();
        assert_no(&replay(&events).1, entries as u64);
    }

    async fn note(&self, event: &str, who: &str) {
        let () = self
            .connection
            .clone()
            .rpush(&self.list, format!("{event} {who}"))
            .await
            .expect("the witness's server replies");
    }

    async fn events(&self) -> Vec<(String, String)> {
        let events: Vec<String> = self
            .connection
            .clone()
            .lrange(&self.list, 0, -1)
            .await
            .expect("the witness's server replies");
        events
            .iter()
            .filter_map(|event| event.split_once(' '))
            .map(|(event, who)| (event.to_owned(), who.to_owned()))
            .collect()
    }
}

impl fmt::Debug for SharedExclusion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SharedExclusion")
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}

/// An owner inside a [`SharedExclusion`], until [`leave`](Self::leave).
#[derive(Debug)]
#[must_use = "call `leave` before the lock is released"]
pub struct SharedInside {
    witness: SharedExclusion,
    name: String,
}

impl SharedInside {
    /// Records the exit.
    pub async fn leave(self) {
        self.witness.note("leave", &self.name).await;
    }
}

/// Replays the events in order. Returns the owners inside at the end, and the overlaps.
fn replay(events: &[(String, String)]) -> (Vec<String>, Vec<Overlap>) {
    let mut inside: BTreeSet<&String> = BTreeSet::new();
    let mut overlaps = Vec::new();
    for (event, who) in events {
        match event.as_str() {
            "enter" => {
                if !inside.is_empty() {
                    let inside = inside.iter().map(ToString::to_string).collect();
                    overlaps.push(Overlap {
                        entered: who.clone(),
                        inside,
                    });
                }
                inside.insert(who);
            }
            "leave" => {
                inside.remove(who);
            }
            _ => inside.retain(|name| !name.contains(who.as_str())),
        }
    }
    (inside.into_iter().cloned().collect(), overlaps)
}

fn assert_no(overlaps: &[Overlap], entries: u64) {
    assert!(
        entries > 0,
        "no owner entered, so the witness proves nothing"
    );
    let details: Vec<String> = overlaps.iter().take(10).map(ToString::to_string).collect();
    assert!(
        overlaps.is_empty(),
        "{} of {entries} entries overlapped: {}",
        overlaps.len(),
        details.join("; ")
    );
}
