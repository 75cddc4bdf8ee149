//! What a majority of the servers says of a lock.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    QuorumStore,
    ballot::Ballot,
    votes::{Verdict, majority_has},
};
use crate::{
    key::Key,
    store::{Entry, StoreError},
};

impl QuorumStore {
    pub(super) async fn look_at(
        &self,
        key: &Key,
        patience: Duration,
    ) -> Result<Option<Entry>, StoreError> {
        let until = Instant::now() + patience;
        let mut ballot = self.ballot();
        let over = (!self.is_up()).then(|| ballot.over());
        for node in &*self.nodes {
            ballot.ask(node.number, node.inspect(key.clone(), over.clone()));
        }
        let answer = loop {
            if let Some(answer) = self.seen(&ballot) {
                break answer;
            }
            if !ballot.next(until).await {
                break Err(ballot.error(&self.nodes));
            }
        };
        self.follow(ballot.into_rest());
        answer
    }

    /// What is known for certain; `None`: nothing yet.
    fn seen(&self, ballot: &Ballot<Option<Entry>>) -> Option<Result<Option<Entry>, StoreError>> {
        let entries = || ballot.answers().filter_map(|(_, entry)| entry.as_ref());
        let mut open = false;
        let mut failed = false;
        // Somebody of whom nobody has spoken yet may hold it too.
        let unheard = Entry {
            owner: String::new(),
            count: 0,
            ttl: None,
            token: None,
        };
        for entry in entries().chain([&unheard]) {
            let holds =
                |seen: &Option<Entry>| seen.as_ref().is_some_and(|seen| seen.owner == entry.owner);
            match ballot.tally(holds).verdict() {
                Verdict::Yes => {
                    let of_owner = entries().filter(|seen| seen.owner == entry.owner);
                    return Some(Ok(Some(agreed(&entry.owner, of_owner, self.nodes.len()))));
                }
                Verdict::Open => open = true,
                Verdict::Split | Verdict::TooFew => failed = true,
                Verdict::No => {}
            }
        }
        match (open, failed) {
            (true, _) => None,
            (false, true) => Some(Err(ballot.error(&self.nodes))),
            (false, false) => Some(Ok(None)),
        }
    }
}

/// What a majority has at least: so many entries, so much time, so high a token.
fn agreed<'a>(owner: &str, entries: impl Iterator<Item = &'a Entry>, servers: usize) -> Entry {
    let entries: Vec<&Entry> = entries.collect();
    let counts = entries.iter().map(|entry| entry.count).collect();
    let ttls = entries
        .iter()
        .map(|entry| entry.ttl.unwrap_or(Duration::MAX));
    let ttl = majority_has(ttls.collect(), servers);
    let tokens = entries.iter().map(|entry| entry.token).collect();
    Entry {
        owner: owner.to_owned(),
        count: majority_has(counts, servers).unwrap_or(0),
        ttl: ttl.filter(|ttl| *ttl < Duration::MAX),
        token: majority_has(tokens, servers).flatten(),
    }
}
