//! How soon a waiter is notified while its runtime is blocked.

use rlock_testkit::{Gate, RedisServer, Way};

use crate::common::{
    LASTING, LONG, acquiring, assert_nothing_left, assert_soon_queued, builder, client, hold,
    its_turn, ms, timed,
};

/// The index of the connection on the client's runtime.
const CALLERS: usize = 1;

/// A runtime that is blocked delays its own requests only, not the notifications of a waiter.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn waiters_are_notified_over_the_background_connection() {
    let server = RedisServer::start();
    let gate = Gate::in_front_of(&server);
    let waiter = builder().response_timeout(LONG);
    let waiter = waiter.connect(&gate.url()).await.expect("it is up");
    let holder = client(&server).await;
    for by_thread in [false, true] {
        let held = hold(&holder, "k").await;
        let lock = waiter.lock("k").lease(LASTING).wait(LONG);
        let waiting = if by_thread {
            tokio::task::spawn_blocking(move || lock.acquire_blocking())
        } else {
            acquiring(lock)
        };
        assert_soon_queued(&server, "k", 1).await;
        // Gives the client time to read the reply to its request.
        tokio::time::sleep(ms(100)).await;
        gate.hold(CALLERS, Way::Replies);
        held.release().await.expect("held");
        let (guard, took) = timed(its_turn(waiting)).await;
        assert!(took < ms(900), "by a thread: {by_thread}, {took:?}");
        gate.pass(CALLERS, Way::Replies);
        guard.release().await.expect("held");
    }
    assert_nothing_left(&server).await;
}
