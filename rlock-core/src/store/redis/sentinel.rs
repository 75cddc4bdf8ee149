//! A master that is looked up anew for each connection, because another server may have been promoted.

use std::{collections::HashMap, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Client, ConnectionInfo, ErrorKind, RedisError, RedisResult, cmd};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    address::{Manner, Server, elsewhere},
    connection::{boxed, multiplexed, without_time_outs},
    errors::timed_out,
};

/// Explains where the URL contains the login of the Sentinels.
pub(super) const LOGIN: &str = "for the Sentinels, user and password stand behind the `?`: \
    `sentinel_user=…&sentinel_password=…`; before the hosts are those of the master";

/// The shortest time-out of a request to a Sentinel.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(500);

/// The Sentinels of a service.
pub(super) struct Sentinels {
    clients: Vec<Client>,
    service: String,
    /// The master, but for its address.
    master: ConnectionInfo,
    manner: Manner,
}

impl Sentinels {
    pub(super) fn new(
        service: &str,
        sentinels: &[ConnectionInfo],
        master: &ConnectionInfo,
        manner: Manner,
    ) -> RedisResult<Self> {
        let clients = sentinels.iter().map(|info| manner.tls.open(info.clone()));
        Ok(Self {
            clients: clients.collect::<RedisResult<_>>()?,
            service: service.to_owned(),
            master: master.clone(),
            manner,
        })
    }

    /// Returns the master as the Sentinels see it now. The caller waits for `within` to be connected to it.
    pub(super) async fn master(&self, within: Duration) -> RedisResult<Server> {
        // The other half is for the master.
        let within = SHORTEST_TIMEOUT.max(within / 2);
        let asked = self.clients.iter().map(|sentinel| async move {
            let answer = timeout(within, boxed(ask(sentinel, &self.service))).await;
            answer.unwrap_or_else(|_| {
                Err(timed_out(format!(
                    "no answer from a sentinel within {within:?}"
                )))
            })
        });
        match highest_epoch(asked, |(epoch, ..)| *epoch, within).await {
            Some(Ok((_, host, port))) => {
                Server::new(&elsewhere(&self.master, host, port), &self.manner)
            }
            Some(Err(error)) => Err(error),
            None => Err(RedisError::from((ErrorKind::Io, "no sentinel answers"))),
        }
    }
}

/// Asks a Sentinel for the master. Returns the epoch of its promotion, its host and its port.
async fn ask(sentinel: &Client, service: &str) -> RedisResult<(u64, String, u16)> {
    let mut connection = multiplexed(sentinel, &without_time_outs()).await?;
    let mut master = cmd("SENTINEL");
    master.arg("MASTER").arg(service);
    let answer: HashMap<String, String> = master.query_async(&mut connection).await?;
    let number = |name| answer.get(name)?.parse().ok();
    let named = || {
        let port = u16::try_from(number("port")?).ok()?;
        Some((number("config-epoch")?, answer.get("ip")?.clone(), port))
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
