//! Sends a request to all members of a quorum, and collects their replies until these decide it.

use std::{
    fmt::Display,
    future::ready,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use rlock_proto::quorum::{SHORTEST_LATE, Votes, majority, rest};
use tokio::{
    sync::{Mutex, mpsc},
    task::coop::unconstrained,
    time::{Instant, timeout_at},
};

use crate::store::{BoxFuture, Store, StoreError, redis::RedisStore};

/// The most late replies of a member that are followed at a time, and the most that wait for that.
const MOST_LATE: usize = 4096;

pub(super) type Members = Arc<[Arc<RedisStore>]>;
pub(super) type MemberReply<T> = Result<T, StoreError>;

pub(super) struct QuorumCall<T> {
    members: Members,
    began: Instant,
    /// How long it waits at least for further members, once a majority has replied.
    pub(super) late: Duration,
    replies: Vec<Option<MemberReply<T>>>,
    under_way: FuturesUnordered<MemberRequest<T>>,
}

/// A request to one member. Resolves with the number of that member and the reply.
struct MemberRequest<T> {
    member: usize,
    reply: BoxFuture<'static, MemberReply<T>>,
}

impl<T> Future for MemberRequest<T> {
    type Output = (usize, MemberReply<T>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let member = self.member;
        self.reply.as_mut().poll(cx).map(|reply| (member, reply))
    }
}

impl<T: Send + 'static> QuorumCall<T> {
    /// Sends a request to all connected members. If these are not a majority, the others get it when they connect.
    pub(super) fn to_all<F>(members: &Members, request: impl Fn(Arc<RedisStore>) -> F) -> Self
    where
        F: Future<Output = MemberReply<T>> + Send + 'static,
    {
        let connected = members.iter().filter(|member| member.is_connected());
        let are_enough = connected.count() >= majority(members.len());
        Self::to_each(members, |member| {
            if are_enough && !member.is_connected() {
                ready(Err(member.why_down())).left_future()
            } else {
                request(member).right_future()
            }
        })
    }

    /// Sends a request to each member, once it is connected.
    pub(super) fn to_each<F>(members: &Members, request: impl Fn(Arc<RedisStore>) -> F) -> Self
    where
        F: Future<Output = MemberReply<T>> + Send + 'static,
    {
        let mut call = Self {
            members: Arc::clone(members),
            began: Instant::now(),
            late: SHORTEST_LATE,
            replies: members.iter().map(|_| None).collect(),
            under_way: FuturesUnordered::new(),
        };
        for (member, store) in members.iter().enumerate() {
            let mut reply = request(Arc::clone(store)).boxed();
            // The first poll sends the request. `FuturesUnordered` may be late with the last ones, when others have
            // decided.
            match unconstrained(&mut reply).now_or_never() {
                Some(reply) => call.replies[member] = Some(reply),
                None => call.under_way.push(MemberRequest { member, reply }),
            }
        }
        call
    }

    /// Collects replies until `is_over`, or for `within` at most. Once a majority has replied, waits
    /// for the others ten times as long as the majority took, or at least for `late`; see [`rest`].
    pub(super) async fn collect(&mut self, within: Duration, is_over: impl Fn(&Self) -> bool) {
        let mut limit = Instant::now() + within;
        while !is_over(self) {
            // Also before the first wait, because a majority may have replied while the requests were sent.
            if self.has_majority() {
                limit = limit.min(Instant::now() + rest(self.began.elapsed(), self.late));
            }
            let next = timeout_at(limit, self.under_way.next());
            let Ok(Some((member, reply))) = next.await else {
                return;
            };
            self.replies[member] = Some(reply);
        }
    }

    pub(super) fn oks(&self) -> impl Iterator<Item = (&Arc<RedisStore>, &T)> {
        let replies = self.members.iter().zip(&self.replies);
        replies.filter_map(|(member, reply)| Some((member, reply.as_ref()?.as_ref().ok()?)))
    }

    pub(super) fn errors(&self) -> impl Iterator<Item = &StoreError> {
        let replies = self.replies.iter().flatten();
        replies.filter_map(|reply| reply.as_ref().err())
    }

    /// Returns the replies of the members that executed the request.
    pub(super) fn votes(&self) -> Votes<'_, T> {
        Votes {
            members: self.members.len(),
            replies: self.oks().map(|(_, reply)| reply).collect(),
        }
    }

    /// Returns whether a majority replied, with any outcome.
    pub(super) fn has_majority(&self) -> bool {
        self.votes().have_majority()
    }

    /// Returns whether a majority can no longer reply, because too many requests have failed.
    pub(super) fn lacks_majority(&self) -> bool {
        let members = self.members.len();
        self.errors().count() > members - majority(members)
    }

    /// Returns whether a member without a reply may have executed the request, or may still execute it.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.replies.iter().any(|reply| match reply {
            None => true,
            Some(Err(error)) => error.maybe_executed,
            Some(Ok(_)) => false,
        })
    }

    /// Returns an error unless a majority replied.
    pub(super) fn needs_majority(&self) -> Result<(), StoreError> {
        if self.has_majority() {
            Ok(())
        } else {
            Err(self.error())
        }
    }

    /// Returns the reason why there is no majority.
    pub(super) fn error(&self) -> StoreError {
        let replies = self.members.iter().zip(&self.replies);
        let failures = replies.filter_map(|(member, reply)| {
            let error = match reply {
                Some(Ok(_)) => return None,
                Some(Err(error)) => error.clone(),
                None if member.is_connected() => StoreError::ambiguous("no reply in time"),
                None => member.why_down(),
            };
            Some((member.describe(), error))
        });
        no_majority(self.members.len(), &failures.collect::<Vec<_>>())
    }
}

/// Returns the error of a request to which these servers did not reply.
fn no_majority(servers: usize, failures: &[(impl Display, StoreError)]) -> StoreError {
    let (answered, needed) = (servers - failures.len(), majority(servers));
    let count =
        |is: fn(&StoreError) -> bool| failures.iter().filter(|(_, error)| is(error)).count();
    let refused = count(|error| error.is_refusal);
    let replied = answered + refused;
    let what = match refused {
        0 if answered >= needed => format!("{needed} are needed that agree"),
        0 => format!("{needed} are needed"),
        refused => format!("{refused} of them with a refusal, and {needed} have to agree"),
    };
    let each = failures
        .iter()
        .map(|(address, error)| format!("{address}: {error}"));
    let each = match each.collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => none,
        each => format!(" ({each})"),
    };
    let text = format!("{replied} of {servers} servers replied, {what}{each}");
    StoreError {
        // A server that refuses would refuse again; the others may come back.
        transient: count(|error| !error.transient) <= servers - needed,
        maybe_executed: answered > 0 || failures.iter().any(|(_, error)| error.maybe_executed),
        is_refusal: refused > servers - needed,
        ..StoreError::ambiguous(text)
    }
}

/// Follows the requests to one member whose calls have ended. A slow member executes them as well, and a connection
/// that does not reply for long is replaced.
pub(super) struct LateReplies {
    sender: mpsc::Sender<BoxFuture<'static, ()>>,
    receiver: Mutex<mpsc::Receiver<BoxFuture<'static, ()>>>,
}

impl LateReplies {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(MOST_LATE);
        Self {
            sender,
            receiver: Mutex::new(receiver),
        }
    }

    /// Ends a call. Follows its requests to their end, unless a member has too many.
    pub(super) fn follow<T: Send + 'static>(of_members: &[Self], call: QuorumCall<T>) {
        for request in call.under_way {
            let sender = &of_members[request.member].sender;
            let _ = sender.try_send(request.map(drop).boxed());
        }
    }

    /// Like [`follow`](Self::follow), but also handles the reply of each member, even if it came before.
    pub(super) fn follow_replies<T: Send + 'static>(
        of_members: &[Self],
        call: QuorumCall<T>,
        then: impl Fn(&Arc<RedisStore>, &T) -> Option<BoxFuture<'static, ()>> + Clone + Send + 'static,
    ) {
        for ((member, reply), late) in call.members.iter().zip(&call.replies).zip(of_members) {
            if let Some(Ok(reply)) = reply
                && let Some(next) = then(member, reply)
            {
                let _ = late.sender.try_send(next);
            }
        }
        for request in call.under_way {
            let (at, then) = (request.member, then.clone());
            let member = Arc::clone(&call.members[at]);
            let followed = async move {
                if let (_, Ok(reply)) = request.await
                    && let Some(next) = then(&member, &reply)
                {
                    next.await;
                }
            };
            let _ = of_members[at].sender.try_send(followed.boxed());
        }
    }

    pub(super) async fn run(&self) {
        let mut receiver = self.receiver.lock().await;
        futures_util::stream::poll_fn(|cx| receiver.poll_recv(cx))
            .for_each_concurrent(MOST_LATE, |request| request)
            .await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use rlock_proto::store::Listener;

    use super::*;
    use crate::store::{endpoint::Endpoint, options::StoreOptions};

    /// Makes members that are not connected.
    fn members(many: usize) -> Members {
        let Ok(Endpoint::Server(endpoint)) = Endpoint::parse("redis://127.0.0.1/") else {
            panic!("a server");
        };
        let (options, listener): (_, Listener) = (StoreOptions::default(), Arc::new(drop));
        let member = |_| RedisStore::of(endpoint.clone(), &options, &listener, None);
        (0..many).map(member).collect()
    }

    /// The client's thread may be quicker than the caller's, which then finds the replies as soon as it has sent the requests.
    #[tokio::test(start_paused = true)]
    async fn a_majority_that_replied_at_once_does_not_wait_for_a_silent_server() {
        let (members, began) = (members(3), Instant::now());
        let mut call = QuorumCall::to_each(&members, |member| {
            let is_silent = Arc::ptr_eq(&member, &members[0]);
            async move {
                if is_silent {
                    pending::<()>().await;
                }
                Ok(())
            }
        });
        let hour = Duration::from_secs(60 * 60);
        call.collect(hour, QuorumCall::lacks_majority).await;
        assert!(call.has_majority());
        assert!(
            began.elapsed() <= SHORTEST_LATE * 2,
            "{:?}",
            began.elapsed()
        );
    }

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
        assert!(error.transient && error.maybe_executed && !error.is_refusal);
        assert_eq!(
            error.to_string(),
            "2 of 5 servers replied, 3 are needed (127.0.0.1:1: no reply within 2s; \
             127.0.0.1:2: no reply within 2s; 127.0.0.1:3: no reply within 2s)"
        );
    }

    #[test]
    fn the_error_counts_a_refusal_as_a_reply() {
        let foreign = StoreError {
            is_refusal: true,
            ..refusal().reworded("the key holds a string".to_owned())
        };
        let error = no_majority(3, &[("a", foreign.clone()), ("b", foreign)]);
        assert_eq!(
            error.to_string(),
            "3 of 3 servers replied, 2 of them with a refusal, and 2 have to agree (a: the key holds a string; \
             b: the key holds a string)"
        );
        assert!(!error.transient && error.is_refusal);
    }

    #[test]
    fn a_lasting_refusal_by_a_minority_is_worth_another_try() {
        let silent = StoreError::no_reply(Duration::from_secs(2));
        assert!(no_majority(3, &[("h", refusal()), ("h", silent)]).transient);
        let error = no_majority(3, &[("h", refusal()), ("h", refusal())]);
        assert!(!error.transient && error.maybe_executed);
        assert!(!no_majority(1, &[("h", refusal())]).maybe_executed);
    }
}
