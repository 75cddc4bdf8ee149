//! The basis for the cost of a quorum: locks of single servers, one on each at once, with the
//! replies of all. A pair takes two round trips to the slowest server.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use rlock_core::{Lock, LockClient, LockGuard};

use super::{BoxFuture, Contestant, Inside, Seat, inside};

pub(super) struct OursOnEach(Vec<LockClient>);

impl OursOnEach {
    pub(super) async fn connect(urls: &[String], lease: Duration) -> Result<Self> {
        let clients = urls.iter().map(|url| async move {
            let builder = LockClient::builder().default_lease(lease);
            builder.connect(url).await
        });
        Ok(Self(try_join_all(clients).await?))
    }
}

impl Contestant for OursOnEach {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let key = format!("each:{key}");
        let clients = self.0.iter();
        let locks = clients.map(|client| client.lock(key.as_str()).wait_forever());
        let seat = OurSeat(locks.collect());
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }
}

struct OurSeat(Vec<Lock>);

impl Seat for OurSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let guards = try_join_all(self.0.iter().map(Lock::acquire)).await?;
            let inside = inside(stay);
            try_join_all(guards.into_iter().map(LockGuard::release)).await?;
            Ok(inside)
        })
    }
}
