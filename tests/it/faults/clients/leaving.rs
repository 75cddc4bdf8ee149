//! Runtimes and clients that end while locks are held.

use rlock_testkit::{RedisServer, eventually, within};
use tokio::runtime::Runtime;

use crate::common::{LONG, assert_unavailable, client};
use crate::leases::clock::HOUR;

#[test]
fn a_runtime_that_is_dropped_with_its_bodies_releases_their_locks() {
    let server = RedisServer::start();
    let (watching, serving) = (Runtime::new().expect("a runtime"), Runtime::new());
    let serving = serving.expect("a runtime");
    let client = serving.block_on(client(&server));
    for n in 0..20 {
        let lock = client.lock(format!("body:{n}")).lease(HOUR).wait(LONG);
        // One body waits for another.
        let same = client.lock("body:0").lease(HOUR).wait(LONG);
        serving.spawn(async move { lock.run(std::future::pending::<()>()).await });
        serving.spawn(async move { same.run(std::future::pending::<()>()).await });
    }
    watching.block_on(eventually(LONG, "all are inside", async || {
        let keys = server.keys("lock:{body:*}").await;
        keys.len() == 20
    }));
    serving.shutdown_timeout(LONG);
    watching.block_on(eventually(LONG, "all are released", async || {
        server.keys("lock:{body:*}").await.is_empty()
    }));
    // The client's own runtime goes on.
    let guard = client.lock("k").acquire_blocking().expect("free");
    watching.block_on(guard.release()).expect("held");
}

#[tokio::test]
async fn a_client_that_is_shut_down_at_a_silent_server_leaves_its_locks_to_the_lease() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("k").lease(HOUR).acquire().await;
    let guard = guard.expect("free");
    server.pause();
    let outcome = within(LONG, "it ends", client.shutdown()).await;
    assert_unavailable(outcome, "no server replies");
    assert!(!guard.is_valid(), "no watchdog renews it any more");
}
