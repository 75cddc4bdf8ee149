//! Observes an embedded store from inside the process that has it.

use std::{iter, sync::Arc, time::Duration};

use rlock_core::{LockClient, inspect::LockInfo};

use super::{caller::print, clients::Clients};
use crate::histories::{
    clock,
    record::Record,
    watch::{POLL, Sightings},
};

/// The limit for late releases.
const PATIENCE: Duration = Duration::from_secs(5);

async fn client(clients: &Clients) -> LockClient {
    LockClient::connect(clients.url())
        .await
        .expect("the embedded store is always there")
}

/// Records the owners of all locks until it is aborted.
pub(super) async fn watch(clients: Arc<Clients>, keys: u32) {
    let client = client(&clients).await;
    let mut sightings = Sightings::new(None, |record| print(&record));
    loop {
        for number in 0..keys {
            let key = format!("k{number}");
            let at = clock::now();
            let info = client.inspect(&key).await.expect("the store is there");
            let owners = info.map_or_else(Vec::new, owners);
            sightings.observe(&key, &owners, at);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn owners(info: LockInfo) -> Vec<String> {
    let others = info.other_owners.iter().map(ToString::to_string);
    iter::once(info.owner).chain(others).collect()
}

/// Records locks with a holder or a queue.
pub(super) async fn look_for_leftovers(clients: &Clients, keys: u32) {
    let client = client(clients).await;
    let end = clock::now() + clock::nanos(PATIENCE);
    for number in 0..keys {
        let key = format!("k{number}");
        let lock = client.lock(&key);
        loop {
            match lock.try_acquire().await {
                Ok(Some(guard)) => {
                    guard.release().await.expect("no other owner takes it");
                    break;
                }
                outcome if clock::now() > end => {
                    let who = client.inspect(&key).await;
                    let what = format!("{key} cannot be taken at the end: {outcome:?}, {who:?}");
                    print(&Record::Leftover { what });
                    break;
                }
                _ => tokio::time::sleep(POLL).await,
            }
        }
    }
}
