//! Locks that require replicas to have them.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError};
use rlock_testkit::{FAILOVER, Proxy, RedisServer, Trio, eventually, within};

use crate::common::{
    FAILOVER_LEASE, LASTING, LONG, acquiring, assert_outlives_the_master, assert_soon_free,
    assert_soon_queued, client, hold, ms, name, resp2, timed,
};

/// Returns a master and its replica.
async fn pair() -> (RedisServer, RedisServer) {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    replica.follow(&master).await;
    (master, replica)
}

/// Returns a client whose locks require this many replicas.
async fn careful(url: &str, least: usize, within: Duration) -> LockClient {
    let builder = LockClient::builder().replicas(least, within);
    builder.connect(url).await.expect("the server is up")
}

/// Checks that the error of an acquire names the number of replicas, and a remedy.
fn assert_too_few(error: &LockError, has: usize, least: usize) {
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let said = error.to_string();
    let number = format!("{has} of the {least} required replicas");
    for part in ["`k`", &number, "was released", "`replicas`"] {
        assert!(said.contains(part), "{said}");
    }
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
    let first = client.lock("first").acquire().await.expect("free");
    assert!(replica.exists(&name("first")).await);
    replica.pause();
    let lock = client.lock("k").lease(LASTING);
    let acquiring = tokio::spawn(async move { timed(lock.acquire()).await });
    tokio::time::sleep(ms(700)).await;
    assert!(!acquiring.is_finished(), "the replica does not have it");
    assert!(master.exists(&name("k")).await);
    replica.resume();
    let (guard, took) = within(LONG, "the lock is acquired", acquiring)
        .await
        .expect("no panic");
    let guard = guard.expect("free");
    assert!(took >= ms(700), "{took:?}");
    assert!(replica.exists(&name("k")).await);
    guard.release().await.expect("held");
    first.release().await.expect("held");
}

#[tokio::test]
async fn shared_locks_and_permits_are_granted_when_the_replica_has_them() {
    let (master, replica) = pair().await;
    let (one, other) = (
        careful(&master.url(), 1, LONG).await,
        careful(&master.url(), 1, LONG).await,
    );
    let mut held = Vec::new();
    for client in [&one, &other, &one] {
        let reader = client.lock("k").shared().acquire().await.expect("shared");
        let permit = client.lock("p").permits(3).acquire().await.expect("free");
        held.extend([reader, permit]);
    }
    for key in ["k", "p"] {
        assert!(replica.exists(&format!("{}:shared", name(key))).await);
    }
    for guard in held {
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_lock_that_a_stopped_replica_does_not_get_is_released_with_an_error() {
    let (master, replica) = pair().await;
    let (strict, other) = (
        careful(&master.url(), 1, ms(300)).await,
        client(&master).await,
    );
    replica.pause();
    let (outcome, took) = timed(strict.lock("k").lease(LASTING).acquire()).await;
    assert_too_few(&outcome.expect_err("no replica answers"), 0, 1);
    assert!(took >= ms(300) && took < LONG, "{took:?}");
    assert!(!master.exists(&name("k")).await, "released by then");
    let next = other.lock("k").acquire().await.expect("free");
    next.release().await.expect("held");
    replica.resume();
    eventually(LONG, "it can be taken again", async || {
        strict.lock("k").acquire().await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn without_any_replica_no_lock_is_granted() {
    let server = RedisServer::start();
    let strict = careful(&server.url(), 1, ms(200)).await;
    let error = strict.lock("k").acquire().await.expect_err("no replica");
    assert_too_few(&error, 0, 1);
    let error = strict
        .lock("k")
        .try_acquire()
        .await
        .expect_err("no replica");
    assert_too_few(&error, 0, 1);
    assert!(!server.exists(&name("k")).await);
}

#[tokio::test]
async fn one_replica_is_not_two() {
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 2, ms(2000)).await;
    let error = strict.lock("k").acquire().await.expect_err("one too few");
    assert_too_few(&error, 1, 2);
    let second = RedisServer::start();
    second.follow(&master).await;
    let strict = careful(&master.url(), 2, LONG).await;
    let guard = strict.lock("k").acquire().await.expect("both have it");
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
    for reaches in [true, false] {
        let time = if reaches { LONG } else { ms(300) };
        let strict = careful(&master.url(), 1, time).await;
        let held = hold(&other, "k").await;
        let waiting = acquiring(strict.lock("k").lease(LASTING).wait(LONG));
        assert_soon_queued(&master, "k", 1).await;
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
    let strict = careful(&master.url(), 1, ms(2000)).await;
    let held = hold(&strict, "k").await;
    let waiting: Vec<_> = (0..3)
        .map(|_| acquiring(strict.lock("k").lease(LASTING).wait(LONG)))
        .collect();
    tokio::time::sleep(ms(300)).await;
    replica.pause();
    held.release().await.expect("held");
    for outcome in join_all(waiting).await {
        let error = outcome.expect("no panic").expect_err("no replica answers");
        assert_too_few(&error, 0, 1);
    }
    assert_soon_free(&master, "k").await;
    replica.resume();
}

#[tokio::test]
async fn a_call_that_waits_for_replicas_delays_no_other_request() {
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 1, ms(6000)).await;
    let held = strict.lock("held").lease(ms(900)).acquire().await;
    let held = held.expect("free");
    replica.pause();
    let acquiring = acquiring(strict.lock("k"));
    for _ in 0..5 {
        let (info, took) = timed(strict.inspect("held")).await;
        assert!(info.expect("a reply").is_some(), "it is renewed");
        assert!(took < ms(2500), "{took:?}");
        tokio::time::sleep(ms(300)).await;
    }
    let ((), took) = timed(async { held.release().await.expect("held") }).await;
    assert!(took < ms(2500), "{took:?}");
    assert!(!acquiring.is_finished(), "all that while");
    let outcome = acquiring.await.expect("no panic");
    assert_too_few(&outcome.expect_err("no replica answers"), 0, 1);
    replica.resume();
}

#[tokio::test]
async fn many_wait_for_replicas_together_and_not_one_after_the_other() {
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 1, ms(500)).await;
    let take = async |key: String| strict.lock(key).lease(LASTING).acquire().await;
    replica.pause();
    let started = Instant::now();
    let outcomes = join_all((0..40).map(|n| take(format!("k{n}")))).await;
    assert!(outcomes.iter().all(Result::is_err));
    // One after the other, the calls would take twenty seconds.
    assert!(started.elapsed() < ms(8000), "{:?}", started.elapsed());
    replica.resume();
    let patient = careful(&master.url(), 1, LONG).await;
    let take = async |key: String| patient.lock(key).lease(LASTING).wait(LONG).acquire().await;
    let outcomes = join_all((0..40).map(|n| take(format!("k{n}")))).await;
    for outcome in outcomes {
        let guard = outcome.expect("the replica has the lock");
        assert!(replica.exists(&name(guard.key())).await);
        guard.release().await.expect("held");
    }
}

/// One `WAIT` serves all requests that are sent meanwhile.
#[tokio::test]
async fn a_foreign_key_in_one_lock_s_place_fails_no_other_that_is_waited_for_together() {
    let (master, replica) = pair().await;
    // Without invalidations, which would end the hold earlier.
    let strict = careful(&resp2(&master.url()), 1, LONG).await;
    let take = |key: &str| {
        let lock = strict.lock(key).lease(LASTING).wait(LONG);
        tokio::spawn(async move { lock.acquire().await })
    };
    let first = take("first").await.expect("no panic").expect("free");
    first.release().await.expect("held");
    replica.pause();
    let under_way = take("under way");
    let on_master = async |key: &str| {
        eventually(LONG, "the master has the lock", async || {
            master.exists(&name(key)).await
        })
        .await;
    };
    on_master("under way").await;
    // The `WAIT` has been sent by now.
    tokio::time::sleep(ms(500)).await;
    let (invalid, one, other) = (take("spoilt"), take("one"), take("other"));
    for key in ["spoilt", "one", "other"] {
        on_master(key).await;
    }
    tokio::time::sleep(ms(500)).await;
    let () = master.command(&["SET", &name("spoilt"), "foreign"]).await;
    replica.resume();
    for waiting in [under_way, one, other] {
        let guard = within(LONG, "a reply", waiting).await.expect("no panic");
        guard
            .expect("the replica has the lock")
            .release()
            .await
            .expect("held");
    }
    let error = within(LONG, "a reply", invalid).await.expect("no panic");
    let error = error.expect_err("it is something else");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert!(
        error.to_string().contains("does not have the lock"),
        "{error}"
    );
    let kept: String = master.command(&["GET", &name("spoilt")]).await;
    assert_eq!(kept, "foreign", "left alone");
}

#[tokio::test]
async fn nested_entries_do_not_wait() {
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 1, ms(5000)).await;
    let lock = strict.lock("k").lease(LASTING);
    let outer = lock.acquire().await.expect("free");
    replica.pause();
    let (inner, took) = timed(outer.scope(lock.acquire())).await;
    inner.expect("enters").release().await.expect("held");
    assert!(took < ms(2000), "{took:?}");
    outer.release().await.expect("held");
    replica.resume();
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_waits_for_replicas_leaves_nothing() {
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 1, LONG).await;
    replica.pause();
    let lock = strict.lock("k").lease(LASTING);
    let soon = tokio::time::timeout(ms(500), lock.acquire()).await;
    assert!(soon.is_err(), "no replica answers");
    assert_soon_free(&master, "k").await;
    replica.resume();
}

#[tokio::test]
async fn the_connection_that_waits_is_replaced_when_it_breaks() {
    let (master, _replica) = pair().await;
    let strict = careful(&master.url(), 1, LONG).await;
    for _ in 0..3 {
        let guard = strict.lock("k").acquire().await.expect("free");
        guard.release().await.expect("held");
        assert!(master.kill_clients("normal").await > 0);
    }
}

#[tokio::test]
async fn a_master_that_is_demoted_meanwhile_is_no_master_and_that_passes() {
    let (master, replica) = pair().await;
    let strict = careful(&master.url(), 1, ms(3000)).await;
    replica.pause();
    let acquiring = acquiring(strict.lock("k").lease(LASTING));
    eventually(LONG, "it waits for the replica", async || {
        master.exists(&name("k")).await
    })
    .await;
    tokio::time::sleep(ms(300)).await;
    let unreachable = RedisServer::start();
    unreachable.kill();
    master.follow_in_vain(&unreachable).await;
    let outcome = within(LONG, "a reply", acquiring).await.expect("no panic");
    let error = outcome.expect_err("it is no master");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    replica.resume();
    master.promote().await;
    let patient = careful(&master.url(), 1, LONG).await;
    replica.follow(&master).await;
    let again = patient.lock("k").wait(LONG * 2).acquire().await;
    again.expect("released").release().await.expect("held");
}

#[tokio::test]
async fn without_the_permission_to_wait_the_error_names_it() {
    let rules = "on >secret resetchannels ~lock:* &lock:* +@all -wait";
    let server = RedisServer::builder().acl_user("locker", rules).start();
    let strict = careful(&server.url_as("locker", "secret"), 1, ms(300)).await;
    let error = strict.lock("k").acquire().await.expect_err("refused");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    assert!(error.to_string().contains("wait"), "{error}");
    assert!(!server.exists(&name("k")).await, "released");
}

#[tokio::test]
async fn a_lock_that_a_replica_has_is_kept_through_a_failover_at_once() {
    let trio = Trio::start().await;
    let strict = careful(&trio.url(), 1, LONG).await;
    let guard = strict.lock("k").lease(FAILOVER_LEASE).acquire().await;
    let guard = guard.expect("free");
    // The replica receives nothing from here on.
    assert_outlives_the_master(&trio, "k").await;
    assert!(guard.is_valid());
    guard.release().await.expect("held");
    // There is no replica any more.
    let lock = careful(&trio.url(), 1, ms(300))
        .await
        .lock("k")
        .wait(FAILOVER);
    assert_too_few(&lock.acquire().await.expect_err("no replica"), 0, 1);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let (none, soon, embedded) = (
        LockClient::builder().replicas(0, LONG),
        LockClient::builder().replicas(1, Duration::ZERO),
        LockClient::builder().replicas(1, LONG),
    );
    for builder in [none, soon, embedded] {
        for outcome in [
            builder.clone().in_memory(),
            builder.connect("memory:").await,
        ] {
            let error = outcome.expect_err("refused");
            let option = "replicas";
            assert!(
                matches!(error, LockError::InvalidOption { option: of, .. } if of == option),
                "{error:?}"
            );
        }
    }
}
