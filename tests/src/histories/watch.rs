//! Observes the owners of locks from outside every few milliseconds.

use std::{sync::Arc, time::Duration};

use redis::{Pipeline, RedisError, aio::MultiplexedConnection};

use super::{
    clock,
    collect::Recorder,
    outage::Server,
    record::{Record, Sighting},
};

/// The interval between observations.
pub(super) const POLL: Duration = Duration::from_millis(40);
/// The owner of a lock that `min_hold` keeps, or the start of the owner's name.
const KEPT: &str = "kept";

/// The name on the server of the lock that clients call `k<number>`.
pub(super) fn name_of(number: u32) -> String {
    format!("lock:{{k{number}}}")
}

/// Merges consecutive observations of the same owner into one record.
pub(super) struct Sightings<F: FnMut(Record)> {
    server: Option<usize>,
    present: Vec<Sighting>,
    note: F,
}

impl<F: FnMut(Record)> Sightings<F> {
    /// Observes this server of a quorum, or the only one.
    pub(super) fn new(server: Option<usize>, note: F) -> Self {
        Self {
            server,
            present: Vec::new(),
            note,
        }
    }

    /// Adds an observation: the lock had these owners at this time or later.
    pub(super) fn observe(&mut self, key: &str, owners: &[String], at: u64) {
        let is_gone = |seen: &mut Sighting| seen.key == key && !owners.contains(&seen.owner);
        for gone in self.present.extract_if(.., is_gone) {
            (self.note)(Record::Seen(gone));
        }
        for owner in owners.iter().filter(|owner| !owner.starts_with(KEPT)) {
            let mut present = self.present.iter_mut();
            if let Some(seen) = present.find(|seen| seen.key == key && seen.owner == *owner) {
                seen.last = at;
                continue;
            }
            self.present.push(Sighting {
                key: key.to_owned(),
                owner: owner.clone(),
                first: at,
                last: at,
                server: self.server,
            });
        }
    }
}

impl<F: FnMut(Record)> Drop for Sightings<F> {
    fn drop(&mut self) {
        for seen in self.present.drain(..) {
            (self.note)(Record::Seen(seen));
        }
    }
}

/// What a server replies about a lock: its fields, its holders with the ends of their leases (ms)
/// if there may be several, and the time in seconds and microseconds.
pub(super) type LockState = (Vec<String>, Vec<(String, f64)>, (f64, f64));

/// Adds the requests for a lock, whose replies are [`LockState`].
pub(super) fn look(pipe: &mut Pipeline, name: &str) {
    pipe.cmd("HKEYS").arg(name);
    let holders = format!("{name}:shared");
    pipe.cmd("ZRANGE")
        .arg(holders)
        .arg(0)
        .arg(-1)
        .arg("WITHSCORES");
    pipe.cmd("TIME");
}

/// Returns the owners whose leases have not ended.
pub(super) fn owners((fields, holders, (seconds, micros)): LockState) -> Vec<String> {
    match fields.first().map(String::as_str) {
        Some("shared" | "permits") => {
            let now = seconds * 1_000.0 + micros / 1_000.0;
            let valid = holders.into_iter().filter(|(_, end)| *end > now);
            valid.map(|(owner, _)| owner).collect()
        }
        _ => fields,
    }
}

/// Observes a server while it is up, until it is aborted.
///
/// `number`: its number in a quorum.
pub(super) async fn watch(
    server: Arc<Server>,
    number: Option<usize>,
    keys: u32,
    recorder: Recorder,
) {
    let mut sightings = Sightings::new(number, |record| recorder.note(record));
    let mut connection = None;
    loop {
        {
            let redis = server.up().await;
            let at = clock::now();
            let known = match connection.take() {
                Some(known) => known,
                None => redis.connection().await,
            };
            // A connection from before a kill is replaced.
            if let Ok((known, all)) = all_owners(known, keys).await {
                connection = Some(known);
                for (number, owners) in all.iter().enumerate() {
                    sightings.observe(&format!("k{number}"), owners, at);
                }
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Returns the connection, and the owners of each lock.
async fn all_owners(
    mut connection: MultiplexedConnection,
    keys: u32,
) -> Result<(MultiplexedConnection, Vec<Vec<String>>), RedisError> {
    let mut all = Vec::new();
    for number in 0..keys {
        let mut pipe = redis::pipe();
        look(&mut pipe, &name_of(number));
        all.push(owners(pipe.query_async(&mut connection).await?));
    }
    Ok((connection, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(look: impl FnOnce(&mut Sightings<Box<dyn FnMut(Record) + '_>>)) -> Vec<Record> {
        let mut records = Vec::new();
        let mut sightings: Sightings<Box<dyn FnMut(Record) + '_>> =
            Sightings::new(None, Box::new(|record| records.push(record)));
        look(&mut sightings);
        drop(sightings);
        records
    }

    fn names(owners: &[&str]) -> Vec<String> {
        owners.iter().map(|owner| (*owner).to_owned()).collect()
    }

    fn locked(owner: &str, first: u64, last: u64) -> Record {
        Record::Seen(Sighting {
            key: "k".to_owned(),
            owner: owner.to_owned(),
            first,
            last,
            server: None,
        })
    }

    #[test]
    fn each_of_several_owners_has_its_times() {
        let records = seen(|sightings| {
            sightings.observe("k", &names(&["a:1s"]), 1);
            sightings.observe("k", &names(&["a:1s", "b:1s"]), 2);
            sightings.observe("k", &names(&["b:1s"]), 3);
            sightings.observe("k", &names(&["a:1s"]), 4);
        });
        let expected = [
            locked("a:1s", 1, 2),
            locked("b:1s", 2, 3),
            locked("a:1s", 4, 4),
        ];
        assert_eq!(records, expected);
    }

    #[test]
    fn locks_at_the_end_are_recorded_and_kept_ones_have_no_holder() {
        let records = seen(|sightings| {
            sightings.observe("k", &names(&[KEPT]), 1);
            sightings.observe("l", &names(&["kept:a:1s", "a:1s"]), 2);
        });
        assert_eq!(records.len(), 1);
    }

    #[test]
    fn holders_whose_leases_ended_do_not_count_nor_those_of_a_lock_that_is_gone() {
        let looked = |fields: &[&str]| {
            let holders = [("a:1s".to_owned(), 7_000.0), ("b:1s".to_owned(), 7_001.0)];
            (names(fields), holders.to_vec(), (7.0, 500.0))
        };
        assert_eq!(owners(looked(&["shared"])), ["b:1s"]);
        assert_eq!(owners(looked(&["permits"])), ["b:1s"]);
        assert_eq!(owners(looked(&["c:1"])), ["c:1"]);
        assert_eq!(owners(looked(&[])), [""; 0]);
    }
}
