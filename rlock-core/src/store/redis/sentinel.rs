//! A master that is looked up anew for each connection, because another server may have been promoted.

use std::{collections::HashMap, fmt, time::Duration};

use redis::{Client, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, RedisResult, cmd};
use tokio::time::timeout;

use super::{
    address::{Manner, Server, logged_in},
    connection::{boxed, multiplexed, without_time_outs},
    hosts::{Hosts, elsewhere, wrong},
    newest::newest,
    query::option,
};

/// Explains where the URL contains the login of the Sentinels.
pub(super) const LOGIN: &str = "for the Sentinels, user and password stand behind the `?`: \
    `sentinel_user=…&sentinel_password=…`; before the hosts are those of the master";

/// Where sentinels listen.
const PORT: u16 = 26379;
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
    /// Reads `redis-sentinel://[user:password@]host[:port],…/service[/database][?options]`. User, password,
    /// database and options are those of the master; of the sentinels
    /// `sentinel_user` and `sentinel_password` among the options.
    pub(super) fn parse(url: &str, manner: Manner) -> RedisResult<Self> {
        let Hosts {
            scheme,
            login,
            names,
            path,
            query,
        } = Hosts::parse(url)?;
        let (service, database) = path.split_once('/').unwrap_or((path, ""));
        if service.is_empty() {
            return Err(wrong("it names no service"));
        }
        let (user, password) = (
            option(query, "sentinel_user"),
            option(query, "sentinel_password"),
        );
        let asks_as = match (user, password) {
            ("", "") => String::new(),
            _ => format!("{user}:{password}@"),
        };
        let sentinels = names.into_iter().map(|host| {
            let port = if has_port(host) {
                String::new()
            } else {
                format!(":{PORT}")
            };
            let info = format!("{scheme}://{asks_as}{host}{port}/").into_connection_info();
            manner.tls.open(logged_in(info?))
        });
        let master = format!("{scheme}://{login}master/{database}?{query}");
        Ok(Self {
            clients: sentinels.collect::<RedisResult<_>>()?,
            service: service.to_owned(),
            master: master.into_connection_info()?,
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
        match newest(asked, |word: &Word| word.epoch, patience).await {
            Some(Ok(Word { host, port, .. })) => {
                Server::new(&elsewhere(&self.master, host, port), &self.manner)
            }
            Some(Err(error)) => Err(error),
            None => Err(RedisError::from((ErrorKind::Io, "no sentinel answers"))),
        }
    }
}

/// Shows the service and the sentinels; never a password.
impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.service)?;
        for (n, sentinel) in self.clients.iter().enumerate() {
            let before = if n == 0 { "" } else { ", " };
            write!(f, "{before}{}", sentinel.get_connection_info().addr())?;
        }
        f.write_str(")")
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

/// Whether a host is followed by a port. The colons of an IPv6 address stand between brackets.
fn has_port(host: &str) -> bool {
    host.rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'))
}

#[cfg(test)]
mod tests {
    use crate::store::redis::address::Address;

    #[test]
    fn a_url_names_sentinels_and_a_service_and_shows_no_password() {
        let url = "redis-sentinel://app:s3cret@one,two:1,[::1]:2/orders/3?sentinel_password=s3cret";
        let address = Address::parse(url, true).expect("valid");
        assert_eq!(address.to_string(), "orders (one:26379, two:1, ::1:2)");
        for (url, reason) in [
            ("redis-sentinel://u:s3cret@one,two", "names no service"),
            (
                "redis-sentinel://u:s3cret@one,,two/orders",
                "host without a name",
            ),
            ("redis-sentinel://u:s3cret@one:99999/orders", "expected"),
            ("redis-sentinel://u:s3cret@one/orders/x", "expected"),
        ] {
            let error = Address::parse(url, true).err().expect(url);
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(reason), "{shown}");
            assert!(!shown.contains("s3cret"), "{shown}");
            assert!(shown.contains("`redis-sentinel://…@one"), "{shown}");
        }
    }
}
