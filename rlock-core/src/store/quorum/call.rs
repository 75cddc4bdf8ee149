//! One request to the members of a quorum, and their replies as they arrive.

use std::{
    fmt::Display,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, timeout_at};

use super::{
    member::{CallState, Member, Reply},
    verdict::{Tally, Verdict, majority},
};
use crate::store::{Acquired, BoxFuture, Store, StoreError};

/// The bounds of the wait for late members that usually reply. Once the others have decided, the call waits for ten
/// times as long as they took.
pub(super) const SHORTEST_LATE: Duration = Duration::from_millis(20);
pub(super) const LONGEST_LATE: Duration = Duration::from_millis(250);

pub(super) type Members = Arc<[Arc<Member>]>;

/// A request that was sent. Resolves with the number of its member and the reply.
pub(super) struct Sent<T> {
    pub(super) member: usize,
    reply: BoxFuture<'static, Reply<T>>,
}

impl<T> Future for Sent<T> {
    type Output = (usize, Reply<T>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let member = self.member;
        self.reply.as_mut().poll(cx).map(|reply| (member, reply))
    }
}

/// How long a call waits for further replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Over,
    /// For late replies, which decide nothing.
    Late,
    /// The same, for at least a quarter of the time: they decide something.
    Decisive,
    Full,
}

pub(super) struct QuorumCall<T> {
    members: Members,
    replies: Vec<Option<Reply<T>>>,
    under_way: FuturesUnordered<Sent<T>>,
    /// The members whose replies the call no longer waits for.
    given_up: Servers,
    terms: CallState,
}

impl<T: Send + 'static> QuorumCall<T> {
    pub(super) fn new(members: &Members) -> Self {
        let up = members.iter().filter(|member| member.store.is_up()).count();
        Self {
            members: Arc::clone(members),
            replies: members.iter().map(|_| None).collect(),
            under_way: FuturesUnordered::new(),
            given_up: Servers::default(),
            terms: CallState {
                decided: Arc::default(),
                until_up: up < majority(members.len()),
            },
        }
    }

    pub(super) fn to_all<F>(
        members: &Members,
        request: impl Fn(Arc<Member>, CallState) -> F,
    ) -> Self
    where
        F: Future<Output = Reply<T>> + Send + 'static,
    {
        let mut call = Self::new(members);
        for member in &**members {
            call.ask(member.number, &request);
        }
        call
    }

    /// Sends a request to one member, again if it has replied before.
    pub(super) fn ask<F>(&mut self, member: usize, request: impl Fn(Arc<Member>, CallState) -> F)
    where
        F: Future<Output = Reply<T>> + Send + 'static,
    {
        let reply = request(Arc::clone(&self.members[member]), self.terms.clone());
        self.replies[member] = None;
        self.given_up.0 &= !(1 << member);
        let reply = Box::pin(reply);
        self.under_way.push(Sent { member, reply });
    }

    /// Collects replies until `wait` is over, or gives up on the members that are missing.
    pub(super) async fn collect(&mut self, until: Instant, wait: impl Fn(&Self) -> Wait) {
        let started = Instant::now();
        let mut late = None;
        loop {
            let limit = match wait(self) {
                Wait::Over => return,
                Wait::Full => until,
                wait => {
                    let late = *late.get_or_insert_with(|| {
                        let longer = started.elapsed() * 10;
                        Instant::now() + longer.clamp(SHORTEST_LATE, LONGEST_LATE)
                    });
                    let quarter = started + until.saturating_duration_since(started) / 4;
                    let is_decisive = wait == Wait::Decisive;
                    until.min(if is_decisive { late.max(quarter) } else { late })
                }
            };
            if !self.next(limit).await {
                let silent: Vec<usize> = self.pending().collect();
                for member in silent {
                    self.given_up.0 |= 1 << member;
                }
                return;
            }
        }
    }

    /// Marks the members that did not reply in time as failing: other acquires do not wait for them.
    pub(super) fn mark_silent(&self) {
        for (number, member) in self.members.iter().enumerate() {
            if self.given_up.has(number) {
                member.health.mark_failing();
            }
        }
    }

    /// Collects replies until they decide, and returns their verdict.
    pub(super) async fn decide_by(
        &mut self,
        until: Instant,
        is_yes: impl Fn(&T) -> bool,
    ) -> Verdict {
        let wait = |call: &Self| match call.verdict(&is_yes) {
            Verdict::Open => Wait::Full,
            _ => Wait::Over,
        };
        self.collect(until, wait).await;
        self.verdict(is_yes)
    }

    /// Takes the next reply, and all others that have arrived. Returns whether one arrived in time.
    pub(super) async fn next(&mut self, until: Instant) -> bool {
        let Ok(Some((member, reply))) = timeout_at(until, self.under_way.next()).await else {
            return false;
        };
        self.replies[member] = Some(reply);
        while let Some(Some((member, reply))) = self.under_way.next().now_or_never() {
            self.replies[member] = Some(reply);
        }
        true
    }

    /// Returns the number of members, including those that were not asked.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    pub(super) fn set(&mut self, member: usize, reply: Reply<T>) {
        self.replies[member] = Some(reply);
    }

    pub(super) fn reply(&self, member: usize) -> Option<&Reply<T>> {
        self.replies[member].as_ref()
    }

    pub(super) fn oks(&self) -> impl Iterator<Item = (usize, &T)> {
        let replies = self.replies.iter().enumerate();
        replies.filter_map(|(member, reply)| Some((member, reply.as_ref()?.as_ref().ok()?)))
    }

    pub(super) fn failures(&self) -> impl Iterator<Item = (&Arc<Member>, &StoreError)> {
        let replies = self.members.iter().zip(&self.replies);
        replies.filter_map(|(member, reply)| Some((member, reply.as_ref()?.as_ref().err()?)))
    }

    fn pending(&self) -> impl Iterator<Item = usize> {
        let replies = self.replies.iter().enumerate();
        let pending =
            replies.filter(|(member, reply)| reply.is_none() && !self.given_up.has(*member));
        pending.map(|(member, _)| member)
    }

    /// Returns whether the reply of a member that usually replies is missing.
    pub(super) fn awaits(&self, member: usize) -> bool {
        self.replies[member].is_none()
            && !self.given_up.has(member)
            && !self.members[member].health.is_failing()
    }

    /// Returns whether the reply of any member that usually replies is missing.
    pub(super) fn awaits_any(&self) -> bool {
        (0..self.replies.len()).any(|member| self.awaits(member))
    }

    pub(super) fn verdict(&self, is_yes: impl Fn(&T) -> bool) -> Verdict {
        let yes = self.oks().filter(|(_, reply)| is_yes(reply)).count();
        let no = self.oks().count() - yes;
        let pending = self.pending().count();
        let failed = self.replies.len() - yes - no - pending;
        let tally = Tally {
            yes,
            no,
            failed,
            pending,
        };
        tally.verdict()
    }

    /// Returns whether a majority replied, with any outcome.
    pub(super) fn has_majority(&self) -> bool {
        self.oks().count() >= majority(self.replies.len())
    }

    /// Waits in full until a majority has replied. Further replies are late.
    pub(super) fn wait_for_majority(&self) -> Wait {
        if self.has_majority() {
            Wait::Late
        } else {
            Wait::Full
        }
    }

    /// Returns whether a member without a reply may have executed the request, or may still execute it.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.replies.iter().any(|reply| match reply {
            None => true,
            Some(Err(error)) => error.maybe_executed,
            Some(Ok(_)) => false,
        })
    }

    /// Returns the reason why there is no majority.
    pub(super) fn error(&self) -> StoreError {
        let replies = self.members.iter().zip(&self.replies);
        let failures = replies.filter_map(|(member, reply)| {
            let error = match reply {
                Some(Ok(_)) => return None,
                Some(Err(error)) => error.clone(),
                None => member.why_silent(),
            };
            Some((member.store.describe(), error))
        });
        no_majority(self.replies.len(), &failures.collect::<Vec<_>>())
    }

    /// Decides the call. Returns the requests without a reply.
    pub(super) fn decide(self) -> impl Iterator<Item = Sent<T>> {
        self.terms.decided.store(true, Ordering::Release);
        self.under_way.into_iter()
    }
}

/// Returns the error of a request to which these servers did not reply.
fn no_majority(servers: usize, failures: &[(impl Display, StoreError)]) -> StoreError {
    let (answered, needed) = (servers - failures.len(), majority(servers));
    let too_many = |is: fn(&StoreError) -> bool| {
        failures.iter().filter(|(_, error)| is(error)).count() > servers - needed
    };
    let agree = if answered >= needed {
        " that agree"
    } else {
        ""
    };
    let each = failures
        .iter()
        .map(|(address, error)| format!("{address}: {error}"));
    let each = match each.collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => none,
        each => format!(" ({each})"),
    };
    let text = format!("{answered} of {servers} servers replied, {needed} are needed{agree}{each}");
    StoreError {
        // A server that refuses would refuse again; the others may come back.
        transient: !too_many(|error| !error.transient),
        maybe_executed: answered > 0 || failures.iter().any(|(_, error)| error.maybe_executed),
        foreign: too_many(|error| error.foreign),
        ..StoreError::ambiguous(text)
    }
}

pub(super) fn is_granted(reply: &Acquired) -> bool {
    matches!(reply, Acquired::Granted { .. })
}

/// Returns the members that replied and granted nothing.
pub(super) fn refusing(call: &QuorumCall<Acquired>) -> Vec<usize> {
    let refusing = call.oks().filter(|(_, reply)| !is_granted(reply));
    refusing.map(|(member, _)| member).collect()
}

/// Some of the servers of a store, one bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Servers(pub(crate) u32);

impl Servers {
    pub(crate) const MOST: usize = u32::BITS as usize;

    pub(crate) fn has(self, server: usize) -> bool {
        self.0 & (1 << server) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> StoreError {
        StoreError {
            transient: false,
            maybe_executed: false,
            ..StoreError::no_reply(Duration::from_secs(2))
        }
    }

    #[test]
    fn the_error_says_how_many_are_missing_and_which_and_why() {
        let silent = StoreError::no_reply(Duration::from_secs(2));
        let missing = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let error = no_majority(5, &missing.map(|address| (address, silent.clone())));
        assert!(error.transient && error.maybe_executed && !error.foreign);
        assert_eq!(
            error.to_string(),
            "2 of 5 servers replied, 3 are needed (127.0.0.1:1: no reply within 2s; \
             127.0.0.1:2: no reply within 2s; 127.0.0.1:3: no reply within 2s)"
        );
    }

    #[test]
    fn what_a_minority_refuses_for_good_is_worth_another_try() {
        let silent = StoreError::no_reply(Duration::from_secs(2));
        assert!(no_majority(3, &[("h", refusal()), ("h", silent)]).transient);
        let error = no_majority(3, &[("h", refusal()), ("h", refusal())]);
        assert!(!error.transient && error.maybe_executed);
        assert!(!no_majority(1, &[("h", refusal())]).maybe_executed);
    }
}
