//! A lost lock stops its body, and its holder affects no other client.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rlock_core::{
    LockClient, LockError, LostCause, current, distributed_lock, testing::simulate_loss,
};
use rlock_testkit::{RedisServer, eventually, within};

use crate::{
    common::{
        LONG, assert_lost, assert_soon_counted, cause_of, client, count, holder, name, resp2_client,
    },
    leases::clock::HOUR,
};

/// Sets a flag when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The first renewal is twenty minutes away.
#[tokio::test]
async fn every_way_to_lose_a_lock_stops_the_body() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = name("k");
    let ways: [&[&[&str]]; 5] = [
        &[&["DEL", &lock]],
        &[&["FLUSHALL"]],
        &[&["RENAME", &lock, "elsewhere"]],
        &[&["DEL", &lock], &["HSET", &lock, "foreign:1", "1"]],
        &[&["SET", &lock, "of another type"]],
    ];
    for way in ways {
        let dropped = Arc::default();
        let values = Dropped(Arc::clone(&dropped));
        let body = async {
            let _values = values;
            for command in way {
                let _: redis::Value = server.command(command).await;
            }
            std::future::pending::<()>().await;
        };
        let call = client.lock("k").lease(HOUR);
        let outcome = within(LONG, "the body is stopped", call.run(body)).await;
        let error = outcome.expect_err("it never ended");
        assert!(dropped.load(Ordering::SeqCst), "its values are dropped");
        assert!(error.to_string().contains("lock `k` was lost"), "{error}");
        assert_eq!(cause_of::<()>(Err(error)), Some(LostCause::Removed));
        server.del(&lock).await;
    }
}

#[tokio::test]
async fn a_loss_is_noticed_after_every_kind_of_own_change() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(HOUR);
    for change in ["nested entry", "nested release"] {
        let guard = lock.acquire().await.expect("free");
        let mut nested = Some(guard.scope(lock.acquire()).await.expect("enters"));
        assert_soon_counted(&server, &guard, 2).await;
        if change == "nested release"
            && let Some(nested) = nested.take()
        {
            nested.release().await.expect("held");
            assert_soon_counted(&server, &guard, 1).await;
        }
        assert!(
            guard.is_valid(),
            "{change}: own changes do not count as a loss"
        );
        assert!(server.del(&name("k")).await);
        for guard in [Some(&guard), nested.as_ref()].into_iter().flatten() {
            assert_lost(guard, LONG, LostCause::Removed).await;
        }
    }
}

#[tokio::test]
async fn a_release_after_the_loss_leaves_the_next_owner_alone() {
    let server = RedisServer::start();
    // No notification reaches this client before it releases.
    let (client, other) = (resp2_client(&server).await, client(&server).await);
    for drop_it in [false, true] {
        let guard = client.lock("k").lease(HOUR);
        let guard = guard.acquire().await.expect("free");
        assert!(server.del(&name("k")).await);
        let next = other.lock("k").acquire().await.expect("free");
        if drop_it {
            let mut watch = server.watch_commands().await;
            drop(guard);
            eventually(LONG, "the release is sent", async || {
                watch.count_of("EVALSHA").await > 0
            })
            .await;
        } else {
            let outcome = guard.release().await;
            assert_eq!(cause_of(outcome), Some(LostCause::Removed));
        }
        assert_eq!(count(&server, &next).await, Some(1), "still the next's");
        next.release().await.expect("held");
    }
}

#[distributed_lock(key = "k", lease = "1h", on_lost = "continue")]
async fn carries_on(server: &RedisServer) -> Result<LostCause, LockError> {
    let hold = current().expect("inside");
    assert!(server.del(&name("k")).await);
    let cause = within(LONG, "the loss is noticed", hold.lost()).await;
    tokio::task::yield_now().await;
    assert!(!hold.is_valid());
    Ok(cause)
}

#[distributed_lock(key = "k", lease = "1h")]
async fn stops(server: &RedisServer) -> Result<(), LockError> {
    assert!(server.del(&name("k")).await);
    std::future::pending().await
}

#[tokio::test]
async fn an_annotated_body_is_stopped_unless_it_is_to_continue() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let cause = client.scope(carries_on(&server)).await;
    assert_eq!(cause.expect("its own value"), LostCause::Removed);
    assert!(!server.exists(&name("k")).await);
    let outcome = within(LONG, "it is stopped", client.scope(stops(&server))).await;
    assert_eq!(cause_of(outcome), Some(LostCause::Removed));
}

/// A process can always be paused. When it resumes, it knows of the loss before its next step.
#[tokio::test]
async fn a_process_that_was_stopped_past_its_lease_finds_out_before_its_next_step() {
    const LEASE: Duration = Duration::from_secs(3);
    let server = RedisServer::start();
    let mut worker = holder(&server, "k", LEASE).await;
    worker.pause();
    let other = client(&server).await;
    let next = other.lock("k").wait(LONG).acquire().await;
    let next = next.expect("the lease has ended");
    // Both lines are ready when the process resumes.
    worker.send("valid?");
    worker.send("step");
    worker.resume();
    worker.close_input();
    let said = worker.remaining_lines(LONG).await;
    assert!(said.contains(&"valid false".to_owned()), "{said:?}");
    assert!(said.contains(&"lost Expired".to_owned()), "{said:?}");
    assert!(!said.contains(&"step".to_owned()), "{said:?}");
    assert_eq!(count(&server, &next).await, Some(1), "the next is unharmed");
    next.release().await.expect("held");
}

#[tokio::test]
async fn the_loss_of_one_of_several_locks_stops_the_body() {
    let client = LockClient::in_memory();
    let locks = client.lock_all((0..5).map(|n| format!("item:{n}")));
    let guard = locks.acquire().await.expect("free");
    let hold = guard.scope(async { current().expect("inside") }).await;
    assert!(hold.is_valid());
    assert!(simulate_loss(&client, "item:3").expect("the embedded store"));
    let (key, cause) = within(LONG, "the loss is notified", guard.lost_key()).await;
    assert_eq!((key, cause), ("item:3", LostCause::Removed));
    let cause = within(LONG, "a later call resolves at once", guard.lost()).await;
    assert_eq!(cause, LostCause::Removed);
    let cause = within(LONG, "the hold is notified, too", hold.lost()).await;
    assert_eq!(cause, LostCause::Removed);
    assert!(!guard.is_valid() && !hold.is_valid());
    assert_eq!(guard.valid_for(), Duration::ZERO);
    let error = guard.release().await.expect_err("one was lost");
    assert!(
        matches!(&error, LockError::Lost { key, .. } if key == "item:3"),
        "{error:?}"
    );
    let body = locks.run(async {
        simulate_loss(&client, "item:0").expect("the embedded store");
        std::future::pending::<()>().await;
    });
    let error = within(LONG, "it stops", body).await.expect_err("lost");
    assert!(
        matches!(&error, LockError::Lost { key, .. } if key == "item:0"),
        "{error:?}"
    );
    let again = locks.try_acquire().await.expect("a reply");
    drop(again.expect("all were released"));
}
