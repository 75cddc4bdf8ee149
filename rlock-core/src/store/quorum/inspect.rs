//! What a majority of the servers says of a lock.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    QuorumStore,
    ballot::Ballot,
    line::lead,
    linger::Linger,
    votes::{Verdict, majority_has},
};
use crate::{
    key::Key,
    store::{Entry, GRACE, StoreError},
};

/// Servers that do not agree may be at different moments of the same change.
const MOMENT: Duration = Duration::from_millis(2);
/// How often the lead is believed that somebody comes.
const LOOKS: u32 = 4;

/// What is known of a lock.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Held(Entry),
    Free,
    /// They do not agree, or too few answered.
    Unclear,
    /// Answers that are to come decide.
    Open,
}

impl QuorumStore {
    pub(super) async fn look_at(
        &self,
        key: &Key,
        patience: Duration,
    ) -> Result<Option<Entry>, StoreError> {
        let until = Instant::now() + patience;
        let (mut pause, mut looks) = (MOMENT, LOOKS);
        loop {
            let lead = lead(&self.nodes);
            let mut ballot = self.ballot();
            let over = (!self.is_up()).then(|| ballot.over());
            for node in &*self.nodes {
                ballot.ask(node.number, node.inspect(key.clone(), over.clone()));
            }
            let seen = self.seen_by_all(&mut ballot, until).await;
            let next = match (&seen, ballot.vote(lead)) {
                (Seen::Free | Seen::Unclear, Some(Ok(Some(entry)))) => on_its_way(entry),
                _ => None,
            };
            let disagree = ballot.has_majority();
            // The lead alone has a holder: somebody is about to give it back, or to ask the others.
            let changes = matches!(ballot.vote(lead), Some(Ok(Some(_))));
            let error = ballot.error(&self.nodes);
            self.follow(ballot.into_rest());
            match seen {
                Seen::Held(entry) => return Ok(Some(entry)),
                _ if next.is_some() => return Ok(next),
                Seen::Free if !changes || looks == 0 => return Ok(None),
                Seen::Free => looks -= 1,
                _ if disagree && Instant::now() + pause < until => {}
                _ => return Err(error),
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Checks that a majority of the servers replies.
    pub(super) async fn majority_answers(&self, patience: Duration) -> Result<(), StoreError> {
        let until = Instant::now() + patience;
        let mut ballot = self.ballot();
        for node in &*self.nodes {
            ballot.ask(node.number, node.ping(patience));
        }
        loop {
            match ballot.tally(|()| true).verdict() {
                Verdict::Open if ballot.next(until).await => {}
                Verdict::Yes => return Ok(()),
                _ => return Err(ballot.error(&self.nodes)),
            }
        }
    }

    /// Whether somebody has a majority.
    pub(super) async fn has_holder(&self, key: &Key, until: Instant) -> bool {
        let mut ballot = self.ballot();
        for node in &*self.nodes {
            ballot.ask(node.number, node.inspect(key.clone(), None));
        }
        let seen = self.seen_by_all(&mut ballot, until).await;
        self.follow(ballot.into_rest());
        matches!(seen, Seen::Held(_))
    }

    /// Servers that answer as a rule are waited for: the lead knows who comes next, and what a majority
    /// of all has of a token is the token of the holder.
    async fn seen_by_all(&self, ballot: &mut Ballot<Option<Entry>>, until: Instant) -> Seen {
        let mut linger = Linger::new(until);
        loop {
            let seen = seen(ballot, self.nodes.len());
            let well = |server: usize| !self.nodes[server].health.is_failing();
            let limit = match seen {
                Seen::Open => until,
                _ if !ballot.pending().any(well) => return seen,
                _ => linger.over(),
            };
            if !ballot.next(limit).await {
                return if seen == Seen::Open {
                    Seen::Unclear
                } else {
                    seen
                };
            }
        }
    }
}

/// The lead gave the lock to whoever was first in line, who is about to ask the others for it: it has
/// not entered yet.
fn on_its_way(entry: &Entry) -> Option<Entry> {
    let briefly = entry.ttl.is_some_and(|ttl| ttl <= GRACE);
    briefly.then(|| Entry {
        count: 0,
        ..entry.clone()
    })
}

fn seen(ballot: &Ballot<Option<Entry>>, servers: usize) -> Seen {
    let entries = || ballot.answers().filter_map(|(_, entry)| entry.as_ref());
    let (mut open, mut unclear) = (false, false);
    // Somebody of whom none has spoken yet may hold it too.
    let owners = entries().map(|entry| entry.owner.as_str());
    for owner in owners.chain([""]) {
        let of_owner = |entry: &Option<Entry>| {
            let holder = entry.as_ref().map(|entry| entry.owner.as_str());
            holder == Some(owner)
        };
        match ballot.tally(of_owner).verdict() {
            Verdict::Yes => {
                let of_owner = entries().filter(|entry| entry.owner == owner);
                return Seen::Held(agreed(owner, of_owner, servers));
            }
            Verdict::Open => open = true,
            Verdict::Split | Verdict::TooFew => unclear = true,
            Verdict::No => {}
        }
    }
    match (open, unclear) {
        (true, _) => Seen::Open,
        (false, true) => Seen::Unclear,
        (false, false) => Seen::Free,
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
