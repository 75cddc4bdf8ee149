//! Locks that require replicas to have them.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError};
use rlock_testkit::{CommandWatch, Proxy, RedisServer, Trio, eventually, within};

use super::{assert_soon_extended, hold_renewed};
use crate::common::{
    LASTING, LONG, acquiring, assert_refused, assert_soon_free, assert_unavailable, builder,
    client, enqueued, hold, its_turn, ms, name, resp2,
};

/// The time in tests in which no replica confirms. Redis ends a `WAIT` up to 100 ms late, so the client leaves it a tenth of this.
const SHORT: Duration = Duration::from_secs(5);

/// Returns a master and its replica.
async fn pair() -> (RedisServer, RedisServer) {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    replica.follow(&master).await;
    (master, replica)
}

/// Returns a client whose locks require this many replicas.
async fn careful(url: &str, least: usize, within: Duration) -> LockClient {
    let builder = builder().wait_for_replicas(least, within);
    builder.connect(url).await.expect("the server is up")
}

/// Checks that the error of an acquire names the number of replicas, and a remedy.
fn assert_too_few(error: &LockError, has: usize, least: usize) {
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let said = format!("{error:#}");
    let number = format!("{has} of the {least} required replicas");
    for part in ["`k`", &number, "was released", "`wait_for_replicas`"] {
        assert!(said.contains(part), "{said}");
    }
}

async fn assert_soon_at(server: &RedisServer, key: &str) {
    eventually(LONG, "the server has the lock", async || {
        server.exists(&name(key)).await
    })
    .await;
}

/// Waits until the client has begun to wait for replicas.
async fn assert_soon_waits(watch: &mut CommandWatch) {
    eventually(LONG, "it waits for the replica", async || {
        watch.count_of("WAIT").await > 0
    })
    .await;
}

/// The former master does not know of its successor yet, so it still replies on an old connection.
#[tokio::test]
async fn the_connection_that_asks_for_replicas_leaves_a_former_master() {
    let ((former, _its_replica), (master, _replica)) = (pair().await, pair().await);
    let proxy = Proxy::in_front_of(&former);
    let client = careful(&proxy.url(), 1, LONG).await;
    let lock = client.lock("k").lease(LASTING);
    lock.run(async {}).await.expect("free");
    proxy.lead_to(&master);
    let clients: String = former.command(&["CLIENT", "LIST"]).await;
    let is_kept = |line: &&str| line.contains("flags=S") || line.contains("cmd=wait");
    let others = clients.lines().filter(|line| !is_kept(line));
    for id in others.filter_map(|line| line.strip_prefix("id=")?.split(' ').next()) {
        let _: Option<i64> = former.command(&["CLIENT", "KILL", "ID", id]).await;
    }
    eventually(LONG, "the lock is granted", async || {
        lock.run(async {}).await.is_ok()
    })
    .await;
    assert_eq!(former.hgetall(&name("k")).await.len(), 0);
}

#[tokio::test]
async fn a_lock_is_granted_when_the_replica_has_it() {
    let (master, replica) = pair().await;
    let client = careful(&master.url(), 1, LONG).await;
    // The first lock opens the connection for `WAIT`.
    let first = hold(&client, "first").await;
    assert!(replica.exists(&name("first")).await);
    replica.pause();
    let waiting = acquiring(client.lock("k").lease(LASTING));
    assert_soon_at(&master, "k").await;
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished(), "the replica does not have it");
    replica.resume();
    let guard = its_turn(waiting).await;
    assert!(replica.exists(&name("k")).await);
    let reader = client.lock("shared").shared().acquire().await;
    let permit = client.lock("permits").permits(3).acquire().await;
    for key in ["shared", "permits"] {
        assert!(replica.exists(&format!("{}:shared", name(key))).await);
    }
    for held in [guard, first, reader.expect("free"), permit.expect("free")] {
        held.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_lock_that_a_stopped_replica_does_not_get_is_released_with_an_error() {
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 1, SHORT).await;
    let other = client(&master).await;
    hold(&strict, "k").await.release().await.expect("held");
    replica.pause();
    let lock = strict.lock("k").lease(LASTING);
    let error = lock.acquire().await.expect_err("no replica answers");
    assert_too_few(&error, 0, 1);
    assert!(!master.exists(&name("k")).await, "released by then");
    let error = lock.try_acquire().await.expect_err("no replica answers");
    assert_too_few(&error, 0, 1);
    hold(&other, "k").await.release().await.expect("held");
    replica.resume();
    eventually(LONG, "it can be taken again", async || {
        lock.run(async {}).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn one_replica_does_not_confirm_a_lock_that_needs_two() {
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 2, SHORT).await;
    let error = strict.lock("k").acquire().await.expect_err("one too few");
    assert_too_few(&error, 1, 2);
    let second = RedisServer::start();
    second.follow(&master).await;
    let strict = careful(&master.url(), 2, LONG).await;
    let guard = hold(&strict, "k").await;
    for replica in [&replica, &second] {
        assert!(replica.exists(&name("k")).await);
    }
    guard.release().await.expect("held");
}

/// The grant goes over the previous holder's connection.
#[tokio::test]
async fn a_lock_that_another_process_hands_off_has_to_reach_the_replica_too() {
    let (master, replica) = pair().await;
    let other = client(&master).await;
    for (time, reaches) in [(LONG, true), (SHORT, false)] {
        let strict = careful(&master.url(), 1, time).await;
        let held = hold(&other, "k").await;
        let waiting = enqueued(&master, strict.lock("k").lease(LASTING).wait(LONG)).await;
        replica.catch_up_with(&master).await;
        if !reaches {
            replica.pause();
        }
        held.release().await.expect("held");
        let outcome = within(LONG, "a reply", waiting).await.expect("no panic");
        if reaches {
            let guard = outcome.expect("granted");
            assert!(replica.exists(&name("k")).await);
            guard.release().await.expect("held");
        } else {
            assert_too_few(&outcome.expect_err("no replica answers"), 0, 1);
            assert_soon_free(&master, "k").await;
            replica.resume();
        }
    }
}

#[tokio::test]
async fn a_lock_that_is_handed_over_within_the_process_has_to_reach_the_replica_too() {
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 1, SHORT).await;
    let held = hold(&strict, "k").await;
    let lock = strict.lock("k").lease(LASTING).wait(LONG);
    let waiting = [(); 3].map(|()| acquiring(lock.clone()));
    // All of them are polled, and wait.
    tokio::task::yield_now().await;
    replica.pause();
    held.release().await.expect("held");
    for outcome in join_all(waiting).await {
        let error = outcome.expect("no panic").expect_err("no replica answers");
        assert_too_few(&error, 0, 1);
    }
    assert_soon_free(&master, "k").await;
    replica.resume();
}

/// The call is cancelled in the end, and leaves nothing.
#[tokio::test]
async fn a_call_that_waits_for_replicas_delays_no_other_request_and_no_nested_entry() {
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 1, LONG * 3).await;
    let lock = strict.lock("held").lease(LASTING);
    let held = lock.acquire().await.expect("free");
    let mut watch = master.watch_commands().await;
    replica.pause();
    let waiting = acquiring(strict.lock("k").lease(LONG * 3));
    assert_soon_waits(&mut watch).await;
    let others = async {
        let info = strict.inspect("held").await.expect("a reply");
        assert!(info.is_some(), "it is held");
        let nested = held.scope(lock.acquire()).await.expect("enters");
        nested.release().await.expect("held");
        held.release().await.expect("held");
    };
    within(LONG, "the others do not wait", others).await;
    assert!(!waiting.is_finished(), "all that while");
    waiting.abort();
    assert_soon_free(&master, "k").await;
    replica.resume();
}

#[tokio::test]
async fn many_wait_for_replicas_together_and_not_one_after_the_other() {
    const CALLS: u32 = 40;
    const EACH: Duration = Duration::from_secs(3);
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 1, EACH).await;
    replica.pause();
    let calls = (0..CALLS).map(async |n| strict.lock(format!("k{n}")).acquire().await);
    let outcomes = within(EACH * CALLS / 2, "they wait together", join_all(calls)).await;
    assert!(outcomes.iter().all(Result::is_err));
    replica.resume();
}

/// One `WAIT` serves all requests that are sent before its reply.
#[tokio::test]
async fn a_foreign_key_in_one_lock_s_place_fails_no_other_that_is_waited_for_together() {
    let (master, replica) = pair().await;
    // Without invalidations, which would end the hold earlier.
    let strict = careful(&resp2(&master.url()), 1, LONG * 2).await;
    let take = |key: &str| acquiring(strict.lock(key).lease(LONG * 2).wait(LONG * 2));
    let first = its_turn(take("first")).await;
    first.release().await.expect("held");
    replica.pause();
    let mut watch = master.watch_commands().await;
    let under_way = take("under way");
    assert_soon_waits(&mut watch).await;
    let (invalid, one, other) = (take("spoilt"), take("one"), take("other"));
    for key in ["spoilt", "one", "other"] {
        assert_soon_at(&master, key).await;
    }
    // All of them have the replies by now, and wait together.
    tokio::time::sleep(ms(500)).await;
    let () = master.command(&["SET", &name("spoilt"), "foreign"]).await;
    replica.resume();
    for waiting in [under_way, one, other] {
        its_turn(waiting).await.release().await.expect("held");
    }
    let outcome = within(LONG, "a reply", invalid).await.expect("no panic");
    let said = assert_unavailable(outcome, "it is something else");
    assert!(said.contains("does not have the lock"), "{said}");
    let kept: String = master.command(&["GET", &name("spoilt")]).await;
    assert_eq!(kept, "foreign", "left alone");
}

#[tokio::test]
async fn the_connection_that_waits_is_replaced_when_it_breaks() {
    let (master, _replica) = pair().await;
    let strict = careful(&master.url(), 1, LONG).await;
    for _ in 0..2 {
        hold(&strict, "k").await.release().await.expect("held");
        assert!(master.kill_clients("normal").await > 0);
    }
}

#[tokio::test]
async fn a_shutdown_ends_an_acquire_that_waits_for_replicas() {
    let (master, replica) = pair().await;
    let client = careful(&master.url(), 1, LONG * 10).await;
    replica.pause();
    let mut watch = master.watch_commands().await;
    let waiting = acquiring(client.lock("k").lease(LASTING));
    assert_soon_waits(&mut watch).await;
    client.shutdown().await.expect("released");
    let outcome = within(LONG, "an error", waiting).await.expect("no panic");
    assert!(
        matches!(outcome, Err(LockError::Closed { .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_master_that_is_demoted_during_a_wait_is_not_a_master_and_that_passes() {
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 1, ms(3000)).await;
    hold(&strict, "k").await.release().await.expect("held");
    replica.pause();
    let mut watch = master.watch_commands().await;
    let waiting = acquiring(strict.lock("k").lease(LASTING));
    assert_soon_waits(&mut watch).await;
    let unreachable = RedisServer::start();
    unreachable.kill();
    master.follow_in_vain(&unreachable).await;
    let outcome = within(LONG, "a reply", waiting).await.expect("no panic");
    assert_unavailable(outcome, "it is not a master");
    replica.resume();
    master.promote().await;
    replica.follow(&master).await;
    let patient = careful(&master.url(), 1, LONG).await;
    let again = patient.lock("k").wait(LONG * 2).acquire().await;
    again.expect("released").release().await.expect("held");
}

#[tokio::test]
async fn without_the_permission_to_wait_the_error_names_it() {
    let rules = "on >secret resetchannels ~lock:* &lock:* +@all -wait";
    let server = RedisServer::builder().acl_user("locker", rules).start();
    let strict = careful(&server.url_as("locker", "secret"), 1, LONG).await;
    let said = assert_refused(strict.lock("k").acquire().await, "refused");
    assert!(said.contains("wait"), "{said}");
    assert!(!server.exists(&name("k")).await, "released");
}

#[tokio::test]
async fn a_lock_that_a_replica_has_is_kept_through_a_failover_at_once() {
    let trio = Trio::start().await;
    let strict = careful(&trio.url(), 1, LONG).await;
    let guard = hold_renewed(&strict, "k").await;
    // The replica receives nothing from here on.
    trio.lose_master().await;
    trio.failed_over().await;
    assert_soon_extended(&guard).await;
    guard.release().await.expect("held");
    // There is no replica any more.
    let last = careful(&trio.url(), 1, SHORT).await;
    let error = last.lock("k").wait(LONG).acquire().await;
    assert_too_few(&error.expect_err("no replica"), 0, 1);
}

#[tokio::test]
async fn a_lock_without_replicas_is_not_kept_by_its_min_hold() {
    let master = RedisServer::start();
    let strict = careful(&master.url(), 1, ms(500)).await;
    let lock = strict.lock("k").lease(LASTING).min_hold(LASTING);
    lock.acquire().await.expect_err("no replica");
    assert_soon_free(&master, "k").await;
}
