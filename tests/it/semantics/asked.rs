//! Revocation: holders that are asked to release their lock.

use rlock_core::{LockClient, testing::use_tokio_clock};
use tokio::{join, time::sleep};

use crate::common::{LONG, ms, on_tokio_clock};

/// Simulates a process that exits when its body ends.
#[tokio::test(start_paused = true)]
async fn a_revoked_holder_that_releases_without_a_reply_counts_as_released() {
    let silent = use_tokio_clock(LockClient::builder()).inspectable(false);
    let silent = silent.connect("memory:asked").await.expect("a client");
    let other = on_tokio_clock("memory:asked").await;
    let lock = silent.lock("k").wait(LONG);
    let guard = lock.acquire().await.expect("free");
    let kept = other.revoke("k").await.expect("a reply");
    assert!(!kept, "it keeps its lock");
    let release = async {
        // The other one has asked by then, and waits for a reply.
        sleep(ms(1)).await;
        guard.release().await.expect("held");
    };
    let (asked, ()) = join!(other.revoke("k"), release);
    assert!(asked.expect("a reply"), "it is free");

    let guard = lock.acquire().await.expect("free");
    let hands_off = async {
        sleep(ms(1)).await;
        let (next, released) = join!(other.lock("k").wait(LONG).acquire(), guard.release());
        released.expect("held");
        next.expect("handed off")
    };
    let (asked, next) = join!(other.revoke("k"), hands_off);
    assert!(asked.expect("a reply"), "another one has it");
    next.release().await.expect("held");

    // Its lease ends before it counts as silent.
    let stuck = lock.lease(ms(100)).watchdog(false).acquire().await;
    let stuck = stuck.expect("free");
    let asked = other.revoke("k").await.expect("a reply");
    assert!(!asked, "its body runs on");
    drop(stuck);
}
