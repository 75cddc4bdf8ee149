//! Calls that receive a lock and are not polled: they keep it for a second, if others wait.

use std::pin::pin;

use rlock_core::{Lock, LockClient};
use rlock_testkit::{RedisServer, within};

use crate::common::{LASTING, LONG, acquiring, assert_soon_queued, begin, client, hold, its_turn};

/// Returns a lock whose lease no test outlasts.
fn lock(client: &LockClient) -> Lock {
    client.lock("k").lease(LASTING).wait(LONG)
}

#[tokio::test]
async fn a_call_that_does_not_pick_up_a_lock_of_its_client_leaves_it_to_other_clients() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for is_shared in [false, true] {
        let shared = |lock: Lock| if is_shared { lock.shared() } else { lock };
        let blocker = hold(&other, "k").await;
        let mut first = pin!(shared(lock(&one)).acquire());
        begin(&mut first).await;
        assert_soon_queued(&server, "k", 1).await;
        let mut idle = Box::pin(shared(lock(&one)).acquire());
        begin(&mut idle).await;
        blocker.release().await.expect("held");
        // A reader lets the other one in. Otherwise the release hands the lock off.
        first
            .await
            .expect("its turn")
            .release()
            .await
            .expect("held");
        let waiting = acquiring(lock(&other));
        let next = within(LONG, "the lock is taken back", its_turn(waiting)).await;
        begin(&mut idle).await;
        next.release().await.expect("held");
        idle.await.expect("its turn").release().await.expect("held");
    }
}
