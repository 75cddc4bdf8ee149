//! Finds the master of a Sentinel service, and learns of promotions. Each connection looks the master up again, because
//! another server may have been promoted.

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{
    Client, ErrorKind, PushInfo, RedisError, RedisResult, Value, aio::MultiplexedConnection,
    from_redis_value, pipe,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};

use super::{
    capabilities::unless_refused,
    dial::{boxed, multiplexed, plain, without_time_outs},
    errors::timed_out,
};
use crate::error::shown;

/// Advice about the login of the Sentinels in a URL.
pub(super) const LOGIN: &str = "for the Sentinels, user and password stand behind the `?`: \
    `sentinel_user=…&sentinel_password=…`; before the hosts are those of the master";

/// The shortest time-out of a request to a Sentinel.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(500);

/// The channel on which a Sentinel reports that it is about to promote a replica.
const BEGUN: &str = "+failover-state-send-slaveof-noone";
/// The channels about promotions. The Sentinel that promotes a replica reports it before the others do.
const PROMOTIONS: [&str; 3] = [BEGUN, "+promoted-slave", "+switch-master"];
/// How often the client asks a Sentinel that refuses the subscription, and one that reports promotions.
pub(super) const EACH: Duration = Duration::from_secs(1);
const EACH_IF_SUBSCRIBED: Duration = Duration::from_secs(10);

/// The master that a Sentinel names, and the epoch of its promotion.
pub(super) struct Named {
    pub(super) promotion: u64,
    pub(super) host: String,
    pub(super) port: u16,
    /// Whether it is about to promote a replica.
    pub(super) is_promoting: bool,
}

/// Returns the master as the Sentinels report it now. Waits longer for a Sentinel that knows at least this promotion.
/// The caller's connection attempt ends after `within`.
pub(super) async fn master(
    service: &str,
    sentinels: &[Client],
    promotion: u64,
    within: Duration,
) -> RedisResult<Named> {
    // The other half is for the connection to the master.
    let within = SHORTEST_TIMEOUT.max(within / 2);
    let asked = sentinels.iter().map(|sentinel| async move {
        let asked = async { ask(&mut plain(sentinel).await?, service).await };
        replied(within, asked).await
    });
    // Of several with the same master, only one promotes a replica.
    let epoch = |named: &Named| (named.promotion, named.is_promoting);
    let highest = highest_epoch(asked, epoch, (promotion, false), within).await;
    let none = || Err(RedisError::from((ErrorKind::Io, "no Sentinel replies")));
    highest.unwrap_or_else(none)
}

/// Calls `learn` with each promotion that a Sentinel knows, and `expect` when it begins one, until it does not reply.
/// `within` limits the connecting.
pub(super) async fn listen(
    sentinel: &Client,
    service: &str,
    within: Duration,
    learn: impl Fn(u64),
    expect: impl Fn() + Send + Sync + 'static,
) -> RedisResult<()> {
    let reported = Arc::new(Notify::new());
    let (report, of_service) = (Arc::clone(&reported), format!(" @ {service} "));
    let config = without_time_outs().set_push_sender(move |push: PushInfo| {
        if let [Value::BulkString(channel), Value::BulkString(about)] = &*push.data
            && channel == BEGUN.as_bytes()
            && String::from_utf8_lossy(about).contains(&of_service)
        {
            expect();
        }
        report.notify_one();
        Ok::<(), Infallible>(())
    });
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
        learn(named.await?.promotion);
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
async fn ask(connection: &mut MultiplexedConnection, service: &str) -> RedisResult<Named> {
    let mut asked = pipe();
    for question in ["MASTER", "GET-MASTER-ADDR-BY-NAME"] {
        asked.cmd("SENTINEL").arg(question).arg(service);
    }
    let replies = connection.send_packed_commands(&asked, 0, asked.len());
    let mut replies = replies.await?.into_iter().map(Value::extract_error);
    let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
    let (facts, address) = (next()?, next()?);
    let facts: HashMap<String, String> = from_redis_value(facts)?;
    let promotion = facts
        .get("config-epoch")
        .and_then(|epoch| epoch.parse().ok());
    let address: Option<(String, u16)> = from_redis_value(address)?;
    let fact = |name: &str| facts.get(name).map_or("", String::as_str);
    let has_begun = fact("flags").contains("failover_in_progress");
    let named = promotion
        .zip(address)
        .map(|(promotion, (host, port))| Named {
            promotion,
            // Once the replica is promoted, the addresses differ for a moment.
            is_promoting: has_begun && fact("ip") == host && fact("port") == port.to_string(),
            host,
            port,
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
