//! The floor of hand-off: a token that is passed through a list. Each task has its own connection,
//! because a blocked connection serves no other task. The token is lost if its holder dies.

use std::time::Duration;

use anyhow::Result;
use redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection};
use rlock_testkit::RedisServer;

use super::{BoxFuture, Contestant, Inside, Seat, inside};

pub(super) struct Blpop(Client);

impl Blpop {
    pub(super) fn connect(url: &str) -> Result<Self> {
        Ok(Self(Client::open(url)?))
    }
}

/// Adds the token to the list.
pub(super) async fn prepare(server: &RedisServer, key: &str) {
    let list = list(key);
    server.del(&list).await;
    let _: u64 = server.command(&["LPUSH", &list, "token"]).await;
}

fn list(key: &str) -> String {
    format!("blpop:{key}")
}

impl Contestant for Blpop {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let list = list(key);
        Box::pin(async {
            // A time-out would end the wait.
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let connecting = self.0.get_multiplexed_async_connection_with_config(&config);
            let connection = connecting.await?;
            Ok(Box::new(BlpopSeat { list, connection }) as Box<dyn Seat>)
        })
    }
}

struct BlpopSeat {
    list: String,
    connection: MultiplexedConnection,
}

impl Seat for BlpopSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let mut pop = redis::cmd("BLPOP");
            pop.arg(&self.list).arg(0);
            let (_, token): (String, String) = pop.query_async(&mut self.connection).await?;
            let inside = inside(stay);
            let mut push = redis::cmd("LPUSH");
            push.arg(&self.list).arg(token);
            let _: u64 = push.query_async(&mut self.connection).await?;
            Ok(inside)
        })
    }
}
