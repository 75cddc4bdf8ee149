//! Waits that are shorter than a round trip.

use std::sync::Arc;

use futures_util::future::join_all;
use rlock_testkit::{Proxy, RedisServer};

use crate::common::{connect, hold, ms, rounds};

const ROUND_TRIP: u64 = 20;
const WAITS: [u64; 5] = [0, 1, 5, 20, 50];

#[tokio::test]
async fn a_wait_shorter_than_a_round_trip_takes_a_free_lock_and_is_no_outage() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = Arc::new(connect(&proxy.url()).await);
    let other = connect(&server.url()).await;
    let taken = hold(&other, "taken").await;
    proxy.delay_replies(ms(ROUND_TRIP));
    for wait in WAITS {
        for round in 0..rounds(5) {
            let free = client.lock(format!("free:{wait}:{round}")).wait(ms(wait));
            let guard = free.acquire().await;
            assert!(guard.is_ok(), "{wait} ms: {guard:?}");
            let error = client.lock("taken").wait(ms(wait)).acquire().await;
            let error = error.expect_err("taken");
            assert!(error.is_contention(), "{wait} ms: {error:?}");
        }
        // Many at once, as after a deploy.
        let each = (0..rounds(5)).map(|call| {
            let lock = client.lock(format!("many:{wait}:{call}")).wait(ms(wait));
            async move { lock.acquire().await.map(drop) }
        });
        let outcomes = join_all(each).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
    drop(taken);
}
