//! The number of requests that renew many leases.

use std::time::Duration;

use rlock_testkit::RedisServer;

use crate::common::client;

#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn hundreds_of_leases_are_renewed_by_a_few_requests() {
    const HELD: u64 = 500;
    const LEASE: Duration = Duration::from_millis(1500);
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut guards = Vec::new();
    for n in 0..HELD {
        let lock = client.lock(format!("many:{n}")).lease(LEASE);
        guards.push(lock.acquire().await.expect("free"));
    }
    let mut watch = server.watch_commands().await;
    tokio::time::sleep(LEASE * 2).await;
    let requests = watch.count_of("EVALSHA").await;
    // Each lease was renewed at least four times, in scripts of up to 16 locks.
    assert!(
        (4 * HELD / 16..=HELD).contains(&requests),
        "{requests} requests for {HELD} leases"
    );
    assert!(guards.iter().all(rlock_core::LockGuard::is_valid));
}
