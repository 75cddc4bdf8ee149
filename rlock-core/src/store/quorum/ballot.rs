//! The answers of all servers to one request, as they come.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, timeout_at};

use super::{
    errors::no_majority,
    node::Node,
    votes::{Tally, majority},
};
use crate::store::{BoxFuture, StoreError};

/// What one server answered.
pub(super) type Vote<T> = Result<T, StoreError>;
/// A request to one server; answers which it was.
pub(super) type Asked<T> = BoxFuture<'static, (usize, Vote<T>)>;

pub(super) struct Ballot<T> {
    votes: Vec<Option<Vote<T>>>,
    rest: FuturesUnordered<Asked<T>>,
    /// What has not left by now is not wanted any more.
    over: Arc<AtomicBool>,
}

impl<T> Ballot<T> {
    pub(super) fn new(servers: usize) -> Self {
        Self {
            votes: (0..servers).map(|_| None).collect(),
            rest: FuturesUnordered::new(),
            over: Arc::default(),
        }
    }

    /// Tells requests which have not left when they are not to.
    pub(super) fn over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.over)
    }

    /// Asks a server, once more if need be.
    pub(super) fn ask(&mut self, server: usize, request: Asked<T>) {
        self.votes[server] = None;
        self.rest.push(request);
    }

    /// Takes the next answer, and whatever came with it; false where none comes until then.
    pub(super) async fn next(&mut self, until: Instant) -> bool {
        let Ok(Some((server, vote))) = timeout_at(until, self.rest.next()).await else {
            return false;
        };
        self.votes[server] = Some(vote);
        while let Some(Some((server, vote))) = self.rest.next().now_or_never() {
            self.votes[server] = Some(vote);
        }
        true
    }

    pub(super) fn vote(&self, server: usize) -> Option<&Vote<T>> {
        self.votes[server].as_ref()
    }

    pub(super) fn set(&mut self, server: usize, vote: Vote<T>) {
        self.votes[server] = Some(vote);
    }

    /// The answers so far.
    pub(super) fn answers(&self) -> impl Iterator<Item = (usize, &T)> {
        let votes = self.votes.iter().enumerate();
        votes.filter_map(|(server, vote)| Some((server, vote.as_ref()?.as_ref().ok()?)))
    }

    /// The servers that have not answered, and have not failed.
    pub(super) fn pending(&self) -> impl Iterator<Item = usize> {
        let votes = self.votes.iter().enumerate();
        votes.filter_map(|(server, vote)| vote.is_none().then_some(server))
    }

    pub(super) fn tally(&self, is_yes: impl Fn(&T) -> bool) -> Tally {
        let mut tally = Tally::default();
        for vote in &self.votes {
            match vote {
                Some(Ok(answer)) if is_yes(answer) => tally.yes += 1,
                Some(Ok(_)) => tally.no += 1,
                Some(Err(_)) => tally.failed += 1,
                None => tally.pending += 1,
            }
        }
        tally
    }

    /// Whether some server may still do, or have done, what was asked of it.
    pub(super) fn may_grant_yet(&self) -> bool {
        self.votes.iter().any(|vote| match vote {
            None => true,
            Some(Err(error)) => error.maybe_executed,
            Some(Ok(_)) => false,
        })
    }

    pub(super) fn has_majority(&self) -> bool {
        self.tally(|_| true).yes >= majority(self.votes.len())
    }

    /// Why there is no majority.
    pub(super) fn error(&self, nodes: &[Arc<Node>]) -> StoreError {
        let failures = nodes.iter().zip(&self.votes).filter_map(|(node, vote)| {
            let error = match vote {
                Some(Ok(_)) => return None,
                Some(Err(error)) => error.clone(),
                None => node.why_silent(),
            };
            Some((node.address.clone(), error))
        });
        let answered = self.tally(|_| true).yes;
        no_majority(nodes.len(), answered, failures.collect())
    }

    /// The requests that were not answered yet.
    pub(super) fn into_rest(self) -> FuturesUnordered<Asked<T>> {
        self.over.store(true, Ordering::Release);
        self.rest
    }
}
