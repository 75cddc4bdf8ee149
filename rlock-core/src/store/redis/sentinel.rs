//! A master that is looked up anew for each connection, because another server may have been promoted.

use std::{collections::HashMap, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Client, ErrorKind, RedisError, RedisResult, cmd};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    connection::{boxed, plain},
    errors::timed_out,
};

/// Explains where the URL contains the login of the Sentinels.
pub(super) const LOGIN: &str = "for the Sentinels, user and password stand behind the `?`: \
    `sentinel_user=…&sentinel_password=…`; before the hosts are those of the master";

/// The shortest time-out of a request to a Sentinel.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns host and port of the master as the Sentinels see it now. The caller waits for `within` to be connected to it.
pub(super) async fn master(
    service: &str,
    sentinels: &[Client],
    within: Duration,
) -> RedisResult<(String, u16)> {
    // The other half is for the master.
    let within = SHORTEST_TIMEOUT.max(within / 2);
    let asked = sentinels.iter().map(|sentinel| async move {
        let answer = timeout(within, boxed(ask(sentinel, service))).await;
        answer.unwrap_or_else(|_| {
            Err(timed_out(format!(
                "no answer from a sentinel within {within:?}"
            )))
        })
    });
    let highest = highest_epoch(asked, |(epoch, _)| *epoch, within).await;
    let none = || Err(RedisError::from((ErrorKind::Io, "no sentinel answers")));
    highest.unwrap_or_else(none).map(|(_, master)| master)
}

/// Asks a Sentinel for host and port of the master, and the epoch of its promotion.
async fn ask(sentinel: &Client, service: &str) -> RedisResult<(u64, (String, u16))> {
    let mut connection = plain(sentinel).await?;
    let mut master = cmd("SENTINEL");
    master.arg("MASTER").arg(service);
    let answer: HashMap<String, String> = master.query_async(&mut connection).await?;
    let number = |name| answer.get(name)?.parse().ok();
    let named = || {
        let port = u16::try_from(number("port")?).ok()?;
        Some((number("config-epoch")?, (answer.get("ip")?.clone(), port)))
    };
    named().ok_or_else(|| {
        RedisError::from((
            ErrorKind::UnexpectedReturnType,
            "a sentinel names no master",
        ))
    })
}

/// How long to wait for the others after the first reply.
const OTHERS: Duration = Duration::from_millis(50);

/// Asks several servers that need not agree. Returns the reply with the highest epoch, so that a server which was cut off
/// from the others does not lead back to a former master. Otherwise returns an error, or `None` if no server was asked.
/// Each request ends by itself within `within`.
pub(in crate::store) async fn highest_epoch<T, E, F>(
    asked: impl IntoIterator<Item = F>,
    epoch: impl Fn(&T) -> u64,
    within: Duration,
) -> Option<Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut asked: FuturesUnordered<F> = asked.into_iter().collect();
    let mut highest = None;
    let mut until = Instant::now() + within * 2;
    while let Ok(Some(reply)) = timeout_at(until, asked.next()).await {
        if reply.is_ok() {
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
