//! Metrics of many renewals and releases at once.

use futures_util::future::join_all;
use rlock_testkit::RedisServer;

use crate::common::{
    alone::alone,
    client, ms,
    recorder::{keep_metrics, metric},
};

/// A release may overtake a renewal, because each has its own connection.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_renewal_that_a_release_overtakes_is_not_counted_as_a_loss() {
    alone!(a_renewal_that_a_release_overtakes_is_not_counted_as_a_loss);
    keep_metrics();
    let renewals =
        |result| metric("rlock_renewals_total", &[("result", result)]).unwrap_or_default();
    let server = RedisServer::start();
    let client = client(&server).await;
    let holds = (0..200_u64).map(async |n| {
        let lock = client.lock(format!("k{n}")).lease(ms(900));
        for round in 0..10 {
            let guard = lock.acquire().await.expect("free");
            // The first renewal is due after 300 ms, on a grid of 75 ms.
            tokio::time::sleep(ms(250 + (n * 7 + round) % 55)).await;
            guard.release().await.expect("held");
        }
    });
    join_all(holds).await;
    assert!(renewals("ok") > 0.0, "some are renewed in time");
    assert!(renewals("gone") <= 0.0, "{}", renewals("gone"));
}
