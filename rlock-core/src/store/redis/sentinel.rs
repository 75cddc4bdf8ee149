//! A master that is looked up anew for each connection, because another server may have been promoted.

use std::{collections::HashMap, time::Duration};

use redis::{Client, ConnectionInfo, ErrorKind, RedisError, RedisResult, cmd};
use tokio::time::timeout;

use super::{
    address::{Manner, Server, elsewhere},
    connection::{boxed, multiplexed, without_time_outs},
    highest_epoch::highest_epoch,
};

/// Explains where the URL contains the login of the Sentinels.
pub(super) const LOGIN: &str = "for the Sentinels, user and password stand behind the `?`: \
    `sentinel_user=…&sentinel_password=…`; before the hosts are those of the master";

/// How long one may take to answer, at least.
const PATIENCE: Duration = Duration::from_millis(500);

/// The sentinels of a service.
pub(super) struct Sentinels {
    clients: Vec<Client>,
    service: String,
    /// The master, but for its address.
    master: ConnectionInfo,
    manner: Manner,
}

/// What a sentinel says of the master.
struct Word {
    host: String,
    port: u16,
    /// Grows with every promotion.
    epoch: u64,
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

    /// The master, as the sentinels see it now, for somebody who waits so long to be connected to it.
    pub(super) async fn master(&self, patience: Duration) -> RedisResult<Server> {
        // The other half is for the master.
        let patience = PATIENCE.max(patience / 2);
        let asked = self.clients.iter().map(|sentinel| async move {
            let answer = timeout(patience, boxed(ask(sentinel, &self.service))).await;
            answer.unwrap_or_else(|_| {
                let waited = format!("no answer from a sentinel within {patience:?}");
                Err(RedisError::from((ErrorKind::Io, "time-out", waited)))
            })
        });
        match highest_epoch(asked, |word: &Word| word.epoch, patience).await {
            Some(Ok(Word { host, port, .. })) => {
                Server::new(&elsewhere(&self.master, host, port), &self.manner)
            }
            Some(Err(error)) => Err(error),
            None => Err(RedisError::from((ErrorKind::Io, "no sentinel answers"))),
        }
    }
}

async fn ask(sentinel: &Client, service: &str) -> RedisResult<Word> {
    let mut connection = multiplexed(sentinel, &without_time_outs()).await?;
    let mut master = cmd("SENTINEL");
    master.arg("MASTER").arg(service);
    let answer: HashMap<String, String> = master.query_async(&mut connection).await?;
    let word = || {
        Some(Word {
            host: answer.get("ip")?.clone(),
            port: answer.get("port")?.parse().ok()?,
            epoch: answer.get("config-epoch")?.parse().ok()?,
        })
    };
    word().ok_or_else(|| {
        RedisError::from((
            ErrorKind::UnexpectedReturnType,
            "a sentinel names no master",
        ))
    })
}
