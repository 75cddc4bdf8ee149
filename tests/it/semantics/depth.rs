//! A lock with a thousand nested entries, and every way out of them.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use rlock_core::{LockClient, LockError, distributed_lock, testing::simulate_loss};
use rlock_testkit::{eventually, within};

use crate::common::LONG;

const DEPTH: u32 = 1000;

/// The event in the innermost entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bottom {
    Returns,
    Panics,
    Stays,
}

/// The lease is longer than any test, so that no lock ends by it.
#[distributed_lock(key = "deep", lease = "5h")]
async fn descend(left: u32, bottom: Bottom) -> Result<u32, LockError> {
    if left > 1 {
        return Box::pin(descend(left - 1, bottom)).await;
    }
    match bottom {
        Bottom::Returns => Ok(rlock_core::current().map_or(0, |hold| hold.depth())),
        Bottom::Panics => panic!("at the bottom"),
        Bottom::Stays => std::future::pending().await,
    }
}

async fn count(client: &LockClient) -> u32 {
    let info = client.inspect("deep").await.expect("a reply");
    info.map_or(0, |info| info.depth)
}

async fn is_at_the_bottom(client: &LockClient) {
    let is_there = async || count(client).await == DEPTH;
    eventually(LONG * 2, "it is at the bottom", is_there).await;
}

/// Checks that nothing is held, and that the next caller is served.
async fn assert_nothing_left(client: &LockClient) {
    let is_free = async || count(client).await == 0;
    eventually(LONG, "the lock is released", is_free).await;
    let depth = client.scope(descend(1, Bottom::Returns)).await;
    assert_eq!(depth.expect("free"), 1);
}

async fn every_way_out() {
    let client = LockClient::in_memory();
    let depth = client.scope(descend(DEPTH, Bottom::Returns)).await;
    assert_eq!(depth.expect("enters"), DEPTH);
    assert_eq!(count(&client).await, 0, "released before the call returns");

    let call = client.scope(descend(DEPTH, Bottom::Panics));
    let panic = AssertUnwindSafe(call).catch_unwind().await;
    let panic = panic.expect_err("it goes on unwinding");
    assert_eq!(panic.downcast_ref(), Some(&"at the bottom"));
    assert_eq!(count(&client).await, 0, "released before the panic goes on");

    let call = Box::pin(client.scope(descend(DEPTH, Bottom::Stays)));
    tokio::select! {
        outcome = call => unreachable!("{outcome:?}"),
        () = is_at_the_bottom(&client) => {}
    }
    assert_nothing_left(&client).await;

    let lost = async {
        is_at_the_bottom(&client).await;
        simulate_loss(&client, "deep").expect("the embedded store")
    };
    let call = Box::pin(client.scope(descend(DEPTH, Bottom::Stays)));
    let both = within(LONG * 3, "it is stopped", async {
        tokio::join!(call, lost)
    });
    let (outcome, revoked) = both.await;
    let error = outcome.expect_err("it is lost");
    assert!(
        revoked && matches!(error, LockError::Lost { .. }),
        "{error:?}"
    );
    assert_nothing_left(&client).await;
}

#[test]
fn every_way_out_of_a_thousand_entries_releases_each_of_them() {
    // Debug builds need far more stack for each call than release builds do.
    let deep = std::thread::Builder::new().stack_size(64 << 20).spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(every_way_out());
    });
    deep.expect("a thread").join().expect("no panic");
}
