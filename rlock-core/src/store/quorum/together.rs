//! Requests of many tasks that are under way at once. Every server is sent the same script for several of
//! them, so that they share what a request costs a client and a server. Only the usual case is served so:
//! all servers are well, a lock is free, and nobody waits for it. All else is asked for by itself.

pub(super) mod acquire;
pub(super) mod release;

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::Either,
    stream::{FuturesUnordered, StreamExt},
};
use tokio::{
    sync::{Notify, oneshot},
    task::coop::unconstrained,
    time::Instant,
};

use self::{acquire::Granted, release::GivenBack};
use super::{QuorumStore, ballot::Ballot, linger::Linger, node::Given};
use crate::store::{BoxFuture, Claim};

/// How many requests one script serves. It holds a server up for about 150 µs then; more save little.
const MOST: usize = 32;
/// Whoever has less time than this asks by itself: the others are not to be hurried.
const LEAST: Duration = Duration::from_secs(1);

/// Requests that are to leave together.
#[derive(Default)]
pub(super) struct Together {
    /// `None`: nobody sends them.
    leaving: Mutex<Option<Leaving>>,
    /// Held while requests that were gathered are being sent.
    sending: Mutex<()>,
    some: Notify,
    /// Requests of all kinds.
    under_way: AtomicUsize,
    /// Some server does not serve several requests at once.
    refused: AtomicBool,
}

#[derive(Default)]
struct Leaving {
    acquires: Vec<Asker<(Claim, Duration), Granted>>,
    releases: Vec<Asker<Given, GivenBack>>,
}

/// Who waits for an answer.
struct Asker<W, A> {
    what: W,
    until: Instant,
    answer: oneshot::Sender<A>,
}

/// What became of a request that was to leave with others. What is not answered is to be asked for by
/// itself, and may have been done all the same.
pub(super) enum Sent<A> {
    No,
    Unanswered,
    Answered(A),
}

/// A request that is under way until this is dropped.
pub(super) struct UnderWay<'a> {
    count: &'a AtomicUsize,
    /// There are others.
    pub(super) in_company: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Together {
    pub(super) fn begin(&self) -> UnderWay<'_> {
        let others = self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay {
            count: &self.under_way,
            in_company: others > 0,
        }
    }

    fn leaving(&self) -> MutexGuard<'_, Option<Leaving>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sending(&self) -> MutexGuard<'_, ()> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is being sent has left when this returns. What is sent then is executed later.
    pub(super) fn settle(&self) {
        drop(self.sending());
    }

    /// What was gathered and is still wanted.
    fn take(&self) -> Leaving {
        let mut taken = self
            .leaving()
            .replace(Leaving::default())
            .unwrap_or_default();
        taken.acquires.retain(Asker::is_there);
        taken.releases.retain(Asker::is_there);
        taken
    }

    /// Puts a request to those that leave next.
    async fn join<W, A>(
        &self,
        what: W,
        until: Instant,
        list: impl Fn(&mut Leaving) -> &mut Vec<Asker<W, A>>,
    ) -> Sent<A> {
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut leaving = self.leaving();
            let Some(leaving) = leaving.as_mut() else {
                return Sent::No;
            };
            let is_first = leaving.is_empty();
            list(leaving).push(Asker {
                what,
                until,
                answer,
            });
            is_first
        };
        if is_first {
            self.some.notify_one();
        }
        // Whoever sends it gives an answer by then, or none.
        answered.await.map_or(Sent::Unanswered, Sent::Answered)
    }
}

impl<W, A> Asker<W, A> {
    fn is_there(&self) -> bool {
        !self.answer.is_closed()
    }
}

impl Leaving {
    fn is_empty(&self) -> bool {
        self.acquires.is_empty() && self.releases.is_empty()
    }
}

/// While this is there, what is gathered is sent.
struct Serving<'a>(&'a Together);

impl<'a> Serving<'a> {
    fn begin(together: &'a Together) -> Self {
        *together.leaving() = Some(Leaving::default());
        Self(together)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        *self.0.leaving() = None;
    }
}

impl QuorumStore {
    fn may_gather(&self, until: Instant) -> bool {
        !self.together.refused.load(Ordering::Relaxed)
            && until >= Instant::now() + LEAST
            && self.nodes.iter().all(|node| node.is_well())
            && self.is_present()
    }

    /// Sends what is gathered, for as long as it is polled.
    pub(super) async fn send_together(&self) {
        let _serving = Serving::begin(&self.together);
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = self.together.some.notified() => {
                    // Whoever else is about to ask does so now.
                    tokio::task::yield_now().await;
                    self.send_off(&mut under_way);
                }
                Some(()) = under_way.next() => {}
            }
        }
    }

    /// Sends all that was gathered and is still wanted.
    fn send_off<'a>(&'a self, under_way: &mut FuturesUnordered<BoxFuture<'a, ()>>) {
        let _sending = self.together.sending();
        let Leaving { acquires, releases } = self.together.take();
        let acquires = in_parts(acquires).map(|part| Either::Left(self.acquire_for(part)));
        let releases = in_parts(releases).map(|part| Either::Right(self.release_for(part)));
        for batch in releases.chain(acquires) {
            // The first look at it sends it, whatever else this task did before.
            let mut batch: BoxFuture<'a, ()> = Box::pin(unconstrained(batch));
            if batch.as_mut().now_or_never().is_none() {
                under_way.push(batch);
            }
        }
    }

    /// Waits until a majority has answered, and then a little for servers that are well and
    /// `still_wanted`; false if there is no majority.
    async fn heard<W, A>(
        &self,
        ballot: &mut Ballot<Vec<u64>>,
        askers: &[Asker<W, A>],
        still_wanted: impl Fn(usize) -> bool,
    ) -> bool {
        let until = askers.iter().map(|asker| asker.until).min();
        let mut linger = Linger::new(until.unwrap_or_else(Instant::now));
        let heard = loop {
            let has_majority = ballot.has_majority();
            let awaited = |server: &usize| {
                !has_majority || !self.nodes[*server].health.is_failing() && still_wanted(*server)
            };
            let awaited: Vec<usize> = ballot.pending().filter(awaited).collect();
            if awaited.is_empty() {
                break has_majority;
            }
            let limit = if has_majority {
                linger.over()
            } else {
                linger.until
            };
            if !ballot.next(limit).await {
                for server in awaited {
                    self.nodes[server].health.fails();
                }
                break has_majority;
            }
        };
        let refused = ballot.failures().any(|error| !error.transient);
        if refused && !self.together.refused.swap(true, Ordering::Relaxed) {
            tracing::debug!("a server refuses scripts for several requests: one by one");
        }
        heard
    }
}

/// In parts of about the same size, each for one script.
fn in_parts<T>(all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let parts = all.len().div_ceil(MOST).max(1);
    let size = all.len().div_ceil(parts).max(1);
    let mut all = all.into_iter().peekable();
    std::iter::from_fn(move || {
        all.peek()?;
        Some(all.by_ref().take(size).collect())
    })
}
