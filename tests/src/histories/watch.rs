//! Observes the owners of locks from outside every few milliseconds.

use std::{collections::HashMap, sync::Arc, time::Duration};

use redis::aio::MultiplexedConnection;

use super::{clock, collect::Recorder, outage::Server, record::Record};

/// The interval between observations.
pub(super) const POLL: Duration = Duration::from_millis(40);
/// The owner of a lock that `at_least` keeps.
const KEPT: &str = "kept";

/// The name on the server of the lock that clients call `k<number>`.
pub(super) fn name_of(number: u32) -> String {
    format!("lock:{{k{number}}}")
}

/// Merges consecutive observations of the same owner into one record.
pub(super) struct Sightings<F: FnMut(Record)> {
    server: Option<usize>,
    present: HashMap<String, Sighting>,
    note: F,
}

struct Sighting {
    owner: String,
    first: u64,
    last: u64,
}

impl<F: FnMut(Record)> Sightings<F> {
    /// Observes this server of a quorum, or the only one.
    pub(super) fn new(server: Option<usize>, note: F) -> Self {
        Self {
            server,
            present: HashMap::new(),
            note,
        }
    }

    /// Adds an observation: the lock had this owner at this time or later.
    pub(super) fn saw(&mut self, key: &str, owner: Option<&str>, at: u64) {
        let owner = owner.filter(|owner| *owner != KEPT);
        if let Some(present) = self.present.get_mut(key)
            && owner == Some(&present.owner)
        {
            present.last = at;
            return;
        }
        if let Some(former) = self.present.remove(key) {
            (self.note)(record(key.to_owned(), former, self.server));
        }
        if let Some(owner) = owner {
            let sighting = Sighting {
                owner: owner.to_owned(),
                first: at,
                last: at,
            };
            self.present.insert(key.to_owned(), sighting);
        }
    }
}

fn record(key: String, sighting: Sighting, server: Option<usize>) -> Record {
    let Sighting { owner, first, last } = sighting;
    Record::Locked {
        key,
        owner,
        first,
        last,
        server,
    }
}

impl<F: FnMut(Record)> Drop for Sightings<F> {
    fn drop(&mut self) {
        for (key, sighting) in self.present.drain() {
            (self.note)(record(key, sighting, self.server));
        }
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
            if let Ok((known, owners)) = owners(known, keys).await {
                connection = Some(known);
                for (number, owner) in owners.iter().enumerate() {
                    sightings.saw(&format!("k{number}"), owner.as_deref(), at);
                }
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

type Looked = (MultiplexedConnection, Vec<Option<String>>);

async fn owners(
    mut connection: MultiplexedConnection,
    keys: u32,
) -> Result<Looked, redis::RedisError> {
    let mut look = redis::pipe();
    for number in 0..keys {
        look.cmd("HKEYS").arg(name_of(number));
    }
    let fields: Vec<Vec<String>> = look.query_async(&mut connection).await?;
    let owners = fields.into_iter().map(|fields| fields.into_iter().next());
    Ok((connection, owners.collect()))
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

    #[test]
    fn looks_that_find_the_same_owner_are_one_record() {
        let records = seen(|sightings| {
            sightings.saw("k", Some("a:1"), 1);
            sightings.saw("k", Some("a:1"), 2);
            sightings.saw("k", Some("b:1"), 3);
            sightings.saw("k", None, 4);
        });
        let locked = |owner: &str, first, last| Record::Locked {
            key: "k".to_owned(),
            owner: owner.to_owned(),
            first,
            last,
            server: None,
        };
        assert_eq!(records, [locked("a:1", 1, 2), locked("b:1", 3, 3)]);
    }

    #[test]
    fn locks_at_the_end_are_recorded_and_kept_ones_have_no_holder() {
        let records = seen(|sightings| {
            sightings.saw("k", Some(KEPT), 1);
            sightings.saw("l", Some("a:1"), 2);
        });
        assert_eq!(records.len(), 1);
    }
}
