//! Inspects a lock on all members, and returns what a majority agrees on.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    QuorumStore,
    call::{QuorumCall, Wait},
    queueing::lead,
    verdict::{Verdict, majority_has},
};
use crate::{
    key::Key,
    store::{Entry, GRACE, StoreError},
};

/// The first pause before members that do not agree are asked again: they may be at different moments of one change.
const PAUSE: Duration = Duration::from_millis(2);

impl QuorumStore {
    pub(super) async fn inspect_members(
        &self,
        key: &Key,
        timeout: Duration,
    ) -> Result<Option<Entry>, StoreError> {
        let until = Instant::now() + timeout;
        let mut pause = PAUSE;
        loop {
            let mut call = QuorumCall::to_all(&self.members, |member, terms| {
                member.inspect(key.clone(), terms)
            });
            // The lead knows the next owner, and a majority of all members knows the token.
            call.collect(until, |call| match holder(call).0 {
                Verdict::Open => Wait::Full,
                _ if call.awaits_any() => Wait::Late,
                _ => Wait::Over,
            })
            .await;
            let (verdict, holder) = holder(&call);
            let next = next_holder(&call, lead(&self.members));
            let (disagree, error) = (call.has_majority(), call.error());
            self.detach(call);
            match verdict {
                Verdict::Yes => return Ok(holder),
                Verdict::No => return Ok(next),
                _ if next.is_some() => return Ok(next),
                _ if disagree && Instant::now() + pause < until => sleep(pause).await,
                _ => return Err(error),
            }
            pause *= 2;
        }
    }
}

/// Returns the waiter to which the lead has handed the lock off. The waiter has not asked the other members yet.
fn next_holder(call: &QuorumCall<Option<Entry>>, lead: usize) -> Option<Entry> {
    let mut entry = call.reply(lead)?.as_ref().ok()?.clone()?;
    entry.count = 0;
    entry.ttl.is_some_and(|ttl| ttl <= GRACE).then_some(entry)
}

/// Returns whether an owner has a majority, and that majority's entry.
fn holder(call: &QuorumCall<Option<Entry>>) -> (Verdict, Option<Entry>) {
    let entries = || call.oks().filter_map(|(_, entry)| entry.as_ref());
    let mut verdict = Verdict::No;
    // An owner that no member has named yet may hold it too.
    let owners = entries().map(|entry| entry.owner.as_str());
    for owner in owners.chain([""]) {
        let is_owners =
            |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.owner == owner);
        match call.verdict(is_owners) {
            Verdict::Yes => {
                let of_owner = entries().filter(|entry| entry.owner == owner);
                let entry = agreed(&of_owner.collect::<Vec<_>>(), call.members());
                return (Verdict::Yes, Some(entry));
            }
            Verdict::Open => verdict = Verdict::Open,
            Verdict::Split | Verdict::TooFew if verdict == Verdict::No => verdict = Verdict::Split,
            _ => {}
        }
    }
    (verdict, None)
}

/// Returns the lowest count, TTL and token that a majority has.
fn agreed(entries: &[&Entry], members: usize) -> Entry {
    let ttl = |entry: &&Entry| entry.ttl.unwrap_or(Duration::MAX);
    let counts = entries.iter().map(|entry| entry.count).collect();
    let tokens = entries.iter().map(|entry| entry.fence).collect();
    let ttl = majority_has(entries.iter().map(ttl).collect(), members);
    Entry {
        owner: entries[0].owner.clone(),
        count: majority_has(counts, members).unwrap_or(0),
        ttl: ttl.filter(|ttl| *ttl < Duration::MAX),
        fence: majority_has(tokens, members).flatten(),
        // One member keeps the queue at a time.
        queue: entries
            .iter()
            .map(|entry| entry.queue.clone())
            .max_by_key(Vec::len)
            .unwrap_or_default(),
    }
}
