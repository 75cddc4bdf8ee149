//! A process that is killed, or ends, inside a lock: the lock passes on when its lease ends.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use rlock_core::current;
use rlock_testkit::{RedisServer, assert_taken, within};

use crate::common::{LASTING, LONG, assert_soon_queued, client, fence, holder, name, worker};

#[tokio::test]
async fn the_lock_of_a_process_that_is_killed_inside_passes_on_when_its_lease_ends() {
    let server = RedisServer::start();
    let mut victim = holder(&server, "k", LASTING).await;
    let is_dead = Arc::new(AtomicBool::new(false));

    let client = client(&server).await;
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    let waiting = tokio::spawn({
        let is_dead = Arc::clone(&is_dead);
        async move {
            let body = async {
                assert!(is_dead.load(Ordering::SeqCst), "both are inside");
                current().expect("inside").token().as_u64()
            };
            lock.run(body).await
        }
    });
    assert_soon_queued(&server, "k", 1).await;
    let owner: Vec<String> = server.command(&["HKEYS", &name("k")]).await;
    let fence: u64 = server.command(&["GET", &fence("k")]).await;
    victim.kill();
    is_dead.store(true, Ordering::SeqCst);
    let now: Vec<String> = server.command(&["HKEYS", &name("k")]).await;
    assert_eq!(now, owner, "its lease has not ended");
    // No client renews the lease, so its end can be brought forward.
    let _: u64 = server.command(&["PEXPIRE", &name("k"), "100"]).await;
    let next = within(LONG, "the next is let in", waiting).await;
    let token = next.expect("no panic").expect("granted");
    assert!(token > fence * 128);
}

/// A dropped guard is released in the background, which ends with the process. An exit looks like a pause, so the lease
/// stays. Only `shutdown().await` guarantees the release.
#[tokio::test]
async fn a_process_that_just_ends_leaves_its_lock_to_the_lease_at_worst() {
    let server = RedisServer::start();
    let (other, lease) = (client(&server).await, LASTING.as_millis().to_string());
    for how in ["at-once", "by-exit"] {
        let mut leaver = worker(&["leave", how, &server.url(), "k", &lease]);
        assert!(leaver.wait(LONG).await.success(), "{how}");
        let left = server.pttl(&name("k")).await;
        assert!(left > 0 || left == -2 && how == "at-once", "{how}: {left}");
        if how == "by-exit" {
            assert_taken(&other, "k").await;
        }
        server.del(&name("k")).await;
    }
}
