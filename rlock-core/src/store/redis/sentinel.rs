//! Asks Sentinels for the master, and learns of promotions. Each connection looks the master up again, because
//! another server may have been promoted.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{
    Client, ErrorKind, ProtocolVersion, PushInfo, RedisError, RedisResult, Value,
    aio::MultiplexedConnection, from_redis_value, pipe,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};

use super::{
    dial::{boxed, multiplexed, plain, without_time_outs},
    errors::timed_out,
    errors::unless_refused,
};
use crate::{store::BoxFuture, wording::shown};

/// Advice about the login of the Sentinels in a URL.
pub(super) const LOGIN: &str = "for the Sentinels, user and password stand behind the `?`: \
    `sentinel_user=…&sentinel_password=…`; before the hosts are those of the master";

/// The shortest time-out of a request to a Sentinel.
pub(super) const SHORTEST_TIMEOUT: Duration = Duration::from_millis(500);

/// The channels about promotions. The Sentinel that promotes a replica reports it before the others do, and 100 ms before it
/// orders it.
const PROMOTIONS: [&str; 3] = [
    "+failover-state-send-slaveof-noone",
    "+promoted-slave",
    "+switch-master",
];
/// The states of a failover in which the Sentinel promotes a replica, and still names the former master.
const PROMOTING: [&str; 3] = ["select_slave", "send_slaveof_noone", "wait_promotion"];
/// How often the client asks a Sentinel that refuses the subscription, and one that reports promotions.
pub(super) const EACH: Duration = Duration::from_secs(1);
const EACH_IF_SUBSCRIBED: Duration = Duration::from_secs(10);

/// A master that Sentinels name.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::store) struct Master {
    /// The epoch of its promotion.
    pub(in crate::store) epoch: u64,
    pub(in crate::store) host: String,
    pub(in crate::store) port: u16,
}

/// The reply of a Sentinel.
pub(in crate::store) struct Named {
    pub(in crate::store) master: Master,
    /// Whether it is about to promote a replica.
    pub(in crate::store) is_promoting: bool,
}

/// Returns the master as the Sentinels report it now, and whether more than half of them replied. Waits longer for a Sentinel
/// that knows at least the promotion of `known`. The caller's connection attempt ends after `within`.
pub(super) async fn master(
    service: &str,
    sentinels: &[Client],
    known: &Master,
    within: Duration,
) -> RedisResult<(Named, bool)> {
    // The other half is for the connection to the master.
    let within = SHORTEST_TIMEOUT.max(within / 2);
    let replies = &AtomicUsize::new(0);
    let asked = sentinels.iter().map(|sentinel| async move {
        let asked = async { ask(&mut plain(sentinel).await?, service).await };
        let named = replied(within, asked).await?;
        replies.fetch_add(1, Ordering::Relaxed);
        Ok(named)
    });
    // A known master counts as replaced only if no Sentinel names it. Of several with the same master, only one promotes a
    // replica.
    let epoch = |named: &Named| {
        let Master { epoch, .. } = named.master;
        (epoch, named.master == *known, named.is_promoting)
    };
    let highest = highest_epoch(asked, epoch, (known.epoch, false, false), within).await;
    let none = || Err(RedisError::from((ErrorKind::Io, "no Sentinel replies")));
    let is_majority = replies.load(Ordering::Relaxed) > sentinels.len() / 2;
    Ok((highest.unwrap_or_else(none)?, is_majority))
}

/// Calls `hear` with each reply of a Sentinel, which is asked again when it reports a promotion, until it does not reply.
/// `within` limits the connecting.
pub(super) async fn listen<'a>(
    sentinel: &Client,
    service: &str,
    within: Duration,
    hear: impl Fn(Named) -> BoxFuture<'a, ()>,
) -> RedisResult<()> {
    let reported = Arc::new(Notify::new());
    let report = Arc::clone(&reported);
    let mut config = without_time_outs();
    // With RESP2, a connection with a subscription takes no questions, so the Sentinel is only asked.
    if sentinel.get_connection_info().redis_settings().protocol() != ProtocolVersion::RESP2 {
        config = config.set_push_sender(move |_: PushInfo| {
            report.notify_one();
            Ok::<(), Infallible>(())
        });
    }
    let mut connection = replied(within, multiplexed(sentinel, &config)).await?;
    let subscribed = replied(within, connection.subscribe(&PROMOTIONS)).await;
    let each = match unless_refused(subscribed) {
        Ok(Some(())) => EACH_IF_SUBSCRIBED,
        _ => EACH,
    };
    loop {
        let named = replied(
            SHORTEST_TIMEOUT.max(within / 2),
            ask(&mut connection, service),
        );
        hear(named.await?).await;
        let _ = timeout(each, reported.notified()).await;
    }
}

/// Awaits the reply of a Sentinel. Returns an error if it does not come within this time.
async fn replied<T>(
    within: Duration,
    reply: impl Future<Output = RedisResult<T>> + Send,
) -> RedisResult<T> {
    let late = || format!("no reply from a Sentinel within {}", shown(within));
    (timeout(within, boxed(reply)).await).unwrap_or_else(|_| Err(timed_out(late())))
}

/// Asks a Sentinel for the master. While it promotes a replica, `MASTER` shows the new epoch and the former address, so
/// the address is asked for separately.
pub(in crate::store) async fn ask(
    connection: &mut MultiplexedConnection,
    service: &str,
) -> RedisResult<Named> {
    let mut asked = pipe();
    for question in ["MASTER", "GET-MASTER-ADDR-BY-NAME"] {
        asked.cmd("SENTINEL").arg(question).arg(service);
    }
    let replies = connection.send_packed_commands(&asked, 0, asked.len());
    let mut replies = replies.await?.into_iter().map(Value::extract_error);
    let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
    let (facts, address) = (next()?, next()?);
    let facts: HashMap<String, String> = from_redis_value(facts)?;
    let epoch = facts
        .get("config-epoch")
        .and_then(|epoch| epoch.parse().ok());
    let address: Option<(String, u16)> = from_redis_value(address)?;
    let state = facts.get("failover-state");
    let named = epoch.zip(address).map(|(epoch, (host, port))| Named {
        master: Master { epoch, host, port },
        is_promoting: state.is_some_and(|state| PROMOTING.contains(&state.as_str())),
    });
    named.ok_or_else(|| {
        RedisError::from((
            ErrorKind::UnexpectedReturnType,
            "a Sentinel named no master",
        ))
    })
}

/// The time to wait for other replies after the first one.
const OTHERS: Duration = Duration::from_millis(50);

/// Awaits the replies of several servers that may disagree. Returns the reply with the highest epoch, because an
/// isolated server may name a former master. Waits longer for an epoch of at least `least`. Returns an error if all
/// requests failed, and `None` without requests. Each request must end within `within`.
pub(in crate::store) async fn highest_epoch<T, E, K: Ord, F>(
    asked: impl IntoIterator<Item = F>,
    epoch: impl Fn(&T) -> K,
    least: K,
    within: Duration,
) -> Option<Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut asked: FuturesUnordered<F> = asked.into_iter().collect();
    let mut highest = None;
    let mut until = Instant::now() + within * 2;
    while let Ok(Some(reply)) = timeout_at(until, asked.next()).await {
        if reply.as_ref().is_ok_and(|reply| epoch(reply) >= least) {
            until = until.min(Instant::now() + OTHERS);
        }
        let is_higher = match (&highest, &reply) {
            (None | Some(Err(_)), _) => true,
            (Some(Ok(highest)), Ok(reply)) => epoch(highest) < epoch(reply),
            (Some(Ok(_)), Err(_)) => false,
        };
        if is_higher {
            highest = Some(reply);
        }
    }
    highest
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// Returns the reply that is chosen from these, each with its delay in milliseconds and its epoch.
    async fn chosen(replies: &[(u64, u64)], least: u64) -> Option<Result<u64, ()>> {
        let replies = replies.iter().map(async |(after, epoch)| {
            sleep(Duration::from_millis(*after)).await;
            Ok(*epoch)
        });
        highest_epoch(replies, |epoch| *epoch, least, Duration::from_millis(500)).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_sentinel_that_lacks_the_last_promotion_does_not_end_the_wait_for_others() {
        let replies = [(0, 1), (300, 2), (400, 3)];
        assert_eq!(chosen(&replies, 0).await, Some(Ok(1)));
        assert_eq!(chosen(&replies, 2).await, Some(Ok(2)));
        assert_eq!(chosen(&replies, 4).await, Some(Ok(3)));
    }
}
