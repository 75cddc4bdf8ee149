//! Finds the master of a Sentinel service. Each connection looks it up again, because another server may have been
//! promoted.

use std::{collections::HashMap, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Client, ErrorKind, RedisError, RedisResult, cmd};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    dial::{boxed, plain},
    errors::timed_out,
};

/// Advice about the login of the Sentinels in a URL.
pub(super) const LOGIN: &str = "for the Sentinels, user and password stand behind the `?`: \
    `sentinel_user=…&sentinel_password=…`; before the hosts are those of the master";

/// The shortest time-out of a request to a Sentinel.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns host and port of the master as the Sentinels report it now. The caller's connection attempt ends after
/// `within`.
pub(super) async fn master(
    service: &str,
    sentinels: &[Client],
    within: Duration,
) -> RedisResult<(String, u16)> {
    // The other half is for the connection to the master.
    let within = SHORTEST_TIMEOUT.max(within / 2);
    let asked = sentinels.iter().map(|sentinel| async move {
        let answer = timeout(within, boxed(ask(sentinel, service))).await;
        answer.unwrap_or_else(|_| {
            Err(timed_out(format!(
                "no reply from a Sentinel within {within:?}"
            )))
        })
    });
    let highest = highest_epoch(asked, |(epoch, _)| *epoch, within).await;
    let none = || Err(RedisError::from((ErrorKind::Io, "no Sentinel replies")));
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
            "a Sentinel named no master",
        ))
    })
}

/// The time to wait for other replies after the first one.
const OTHERS: Duration = Duration::from_millis(50);

/// Awaits the replies of several servers that may disagree. Returns the reply with the highest epoch, because an
/// isolated server may name a former master. Returns an error if all requests failed, and `None` without requests.
/// Each request must end within `within`.
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
