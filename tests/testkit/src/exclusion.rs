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
    /// Who entered.
    pub entered: String,
    /// Who was inside already.
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

/// Counts who is inside, within this process. Clones count together.
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
    /// Makes a witness that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that `who` is inside until the answer is dropped.
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

    /// How many are inside now.
    #[must_use]
    pub fn inside(&self) -> usize {
        self.count().inside.len()
    }

    /// How many have entered so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.count().entries
    }

    /// The most that were inside at once.
    #[must_use]
    pub fn max_inside(&self) -> usize {
        self.count().max_inside
    }

    /// Every entry that found another holder inside.
    #[must_use]
    pub fn overlaps(&self) -> Vec<Overlap> {
        self.count().overlaps.clone()
    }

    /// Panics with the details if two were ever inside at once, or if none ever entered.
    pub fn assert_held(&self) {
        assert_no(&self.overlaps(), self.entries());
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A holder inside an [`Exclusion`]; leaves when dropped.
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

/// Counts who is inside, across processes: a list of events on a server of its own, in that server's
/// order. Use another server than the one under test, or its faults hit the witness.
///
/// Note an entry after the lock was granted, and the leaving before it is released: then every
/// overlap in the list was one in the world.
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

    /// Notes that `who` is inside until [`SharedInside::leave`].
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

    /// Notes that a process is dead, so that nothing in it is inside any more. Call it once the
    /// process is reaped.
    pub async fn died(&self, pid: u32) {
        self.note("died", &format!("(process {pid},")).await;
    }

    /// How many have entered so far.
    pub async fn entries(&self) -> u64 {
        self.events()
            .await
            .iter()
            .filter(|(event, _)| event == "enter")
            .count() as u64
    }

    /// Who is inside now.
    pub async fn inside(&self) -> Vec<String> {
        replay(&self.events().await).0
    }

    /// Every entry that found another holder inside.
    pub async fn overlaps(&self) -> Vec<Overlap> {
        replay(&self.events().await).1
    }

    /// Panics with the details if two were ever inside at once, or if none ever entered.
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
            .expect("the witness's server answers");
    }

    async fn events(&self) -> Vec<(String, String)> {
        let events: Vec<String> = self
            .connection
            .clone()
            .lrange(&self.list, 0, -1)
            .await
            .expect("the witness's server answers");
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

/// A holder inside a [`SharedExclusion`]. Stays inside until it says that it leaves.
#[derive(Debug)]
#[must_use = "call `leave` before the lock is released"]
pub struct SharedInside {
    witness: SharedExclusion,
    name: String,
}

impl SharedInside {
    /// Notes the leaving.
    pub async fn leave(self) {
        self.witness.note("leave", &self.name).await;
    }
}

/// Goes through the events in order: who is inside at the end, and what overlapped on the way.
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
        "nobody ever entered: the witness proves nothing"
    );
    let details: Vec<String> = overlaps.iter().take(10).map(ToString::to_string).collect();
    assert!(
        overlaps.is_empty(),
        "{} of {entries} entries overlapped: {}",
        overlaps.len(),
        details.join("; ")
    );
}
