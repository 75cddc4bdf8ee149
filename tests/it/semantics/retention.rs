//! Ownerships that outlive a hold, for later callers of the same process.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError, distributed_lock};
use rlock_testkit::{RedisServer, eventually, within};

use crate::common::{
    LASTING, LONG, acquiring, assert_soon_free, builder, client, connect, hold, its_turn, ms, name,
    speed::{assert_within, in_time},
};

/// Longer than any of these tests.
const RETAIN: Duration = Duration::from_secs(60);

async fn keep(client: &LockClient, key: &str, retain: Duration) -> u64 {
    let lock = client.lock(key).lease(LASTING).retain(retain);
    let guard = lock.acquire().await.expect("free");
    let token = guard.fencing_token();
    guard.release().await.expect("held");
    token
}

async fn is_retained(client: &LockClient, key: &str) -> bool {
    let info = client.inspect(key).await.expect("a reply");
    info.is_some_and(|info| info.retained)
}

#[tokio::test]
async fn the_next_call_costs_no_request() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let first = keep(&client, "k", RETAIN).await;
    let info = client.inspect("k").await.expect("a reply").expect("kept");
    assert!(info.retained);
    assert_eq!((info.token, info.count), (Some(first), 1));
    let mut watch = server.watch_commands().await;
    let mut last = first;
    for _ in 0..10 {
        let token = keep(&client, "k", RETAIN).await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    assert_eq!(watch.count_of("EVALSHA").await, 0);
    client.shutdown().await.expect("released");
    assert!(!server.exists(&name("k")).await);
}

#[tokio::test]
async fn tokens_are_reserved_in_the_background_before_they_end() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut watch = server.watch_commands().await;
    let mut last = 0;
    for _ in 0..1000 {
        let token = keep(&client, "k", RETAIN).await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    let scripts = watch.count_of("EVALSHA").await;
    // A new fence brings the tokens of the time that has passed.
    assert!((2..=30).contains(&scripts), "{scripts} scripts");
    let other = connect(&server.url()).await;
    let taken = its_turn(acquiring(other.lock("k").wait(LONG))).await;
    assert!(taken.fencing_token() > last);
    taken.release().await.expect("held");
}

#[tokio::test]
async fn another_client_that_wants_the_lock_gets_it_at_once() {
    in_time(wanted_locks_are_given_up).await;
}

async fn wanted_locks_are_given_up() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let mut last = 0;
    for round in 0..10 {
        let (keeps, wants) = if round % 2 == 0 {
            (&one, &other)
        } else {
            (&other, &one)
        };
        let kept = keep(keeps, "k", RETAIN).await;
        assert!(kept > last);
        assert!(is_retained(keeps, "k").await);
        assert!(is_retained(wants, "k").await, "its client says so");
        let asked = Instant::now();
        let taken = its_turn(acquiring(wants.lock("k").lease(LASTING).wait(LONG))).await;
        let took = asked.elapsed();
        assert_within(took, ms(500), "giving it up");
        assert!(taken.fencing_token() > kept);
        last = taken.fencing_token();
        taken.release().await.expect("held");
        assert_soon_free(&server, "k").await;
    }
}

/// Without messages, only its own renewals tell the owner that others wait.
#[tokio::test]
async fn without_messages_the_owner_learns_by_its_renewal_that_the_lock_is_wanted() {
    let server = RedisServer::start();
    server
        .set_user("mute", "on >secret ~* &* +@all -publish")
        .await;
    let one = client(&server).await;
    let mute = connect(&server.url_as("mute", "secret")).await;
    let lock = one.lock("k").lease(ms(1500)).retain(RETAIN);
    lock.acquire()
        .await
        .expect("free")
        .release()
        .await
        .expect("held");
    let asked = Instant::now();
    let taken = its_turn(acquiring(mute.lock("k").wait(LONG))).await;
    // The waiter gets no message either, and asks again by its timer.
    assert!(asked.elapsed() < ms(8000), "{:?}", asked.elapsed());
    taken.release().await.expect("held");
}

#[tokio::test]
async fn a_retention_ends_by_itself_and_is_renewed_until_then() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(300)).retain(ms(1200));
    let guard = lock.acquire().await.expect("free");
    guard.release().await.expect("held");
    let kept = Instant::now();
    tokio::time::sleep(ms(700)).await;
    assert!(is_retained(&client, "k").await, "longer than its lease");
    assert_soon_free(&server, "k").await;
    let lasted = kept.elapsed();
    assert!(lasted > ms(1100) && lasted < ms(3000), "{lasted:?}");
}

#[tokio::test]
async fn a_drained_a_shut_down_and_a_dropped_client_give_retained_locks_back() {
    let server = RedisServer::start();
    for how in ["drain", "shutdown", "drop"] {
        let client = client(&server).await;
        keep(&client, "k", RETAIN).await;
        assert!(server.exists(&name("k")).await);
        match how {
            "drain" => {
                let drained = within(LONG, "drained", client.drain(RETAIN)).await;
                assert_eq!(drained.expect("released"), rlock_core::Drained::Completed);
            }
            "shutdown" => client.shutdown().await.expect("released"),
            _ => drop(client),
        }
        assert_soon_free(&server, "k").await;
    }
}

#[tokio::test]
async fn a_retained_lock_that_was_deleted_is_acquired_again() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let kept = keep(&one, "k", RETAIN).await;
    assert!(server.del(&name("k")).await);
    let taken = hold(&other, "k").await;
    assert!(taken.fencing_token() > kept);
    // The loss is pushed, and no hold is affected.
    eventually(LONG, "it is not retained any more", async || {
        matches!(one.lock("k").try_acquire().await, Ok(None))
    })
    .await;
    let theirs = taken.fencing_token();
    taken.release().await.expect("held");
    let again = its_turn(acquiring(one.lock("k").wait(LONG))).await;
    assert!(again.fencing_token() > theirs);
    again.release().await.expect("held");
}

#[tokio::test]
async fn several_keys_of_which_some_are_retained_are_taken_all_or_none() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let kept = keep(&one, "a", RETAIN).await;
    let both = one.lock_all(["a", "b"]).lease(LASTING).wait(LONG);
    let guard = both.acquire().await.expect("free");
    let tokens: Vec<u64> = guard
        .guards()
        .iter()
        .map(rlock_core::LockGuard::fencing_token)
        .collect();
    assert!(tokens[0] > kept, "{tokens:?} after {kept}");
    guard.release().await.expect("held");

    let kept = keep(&one, "a", RETAIN).await;
    assert!(kept > tokens[0]);
    let taken = hold(&other, "b").await;
    let none = both.clone().wait(ms(200)).acquire().await;
    assert!(matches!(none, Err(LockError::Timeout { .. })), "{none:?}");
    taken.release().await.expect("held");
    for key in ["a", "b"] {
        let free = its_turn(acquiring(other.lock(key).wait(LONG))).await;
        free.release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_one_process_take_a_lock_over_with_growing_tokens() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let inside = rlock_testkit::Exclusion::new();
    let highest = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let tasks = (0..16).map(|task| {
        let (lock, inside) = (client.lock("k").wait(LONG), inside.clone());
        let highest = std::sync::Arc::clone(&highest);
        tokio::spawn(async move {
            for _ in 0..200 {
                let guard = lock.acquire().await.expect("its turn");
                let entered = inside.enter(format!("{task}"));
                let token = guard.fencing_token();
                let before = highest.swap(token, std::sync::atomic::Ordering::AcqRel);
                assert!(token > before, "{token} after {before}");
                drop(entered);
                guard.release().await.expect("held");
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("no panic");
    }
    inside.assert_held();
    assert_soon_free(&server, "k").await;
}

#[tokio::test]
async fn a_lock_is_not_handed_over_after_its_lease_or_its_max_hold() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(LASTING).max_hold(ms(300));
    let guard = lock.acquire().await.expect("free");
    let owner = guard.owner();
    let waiting = acquiring(client.lock("k").wait(LONG));
    tokio::time::sleep(ms(500)).await;
    assert!(guard.release().await.is_err(), "held for too long");
    let next = its_turn(waiting).await;
    assert_ne!(next.owner(), owner, "the ownership is abandoned");
    next.release().await.expect("held");

    let lock = client.lock("k").lease(ms(400)).watchdog(false);
    let guard = lock.acquire().await.expect("free");
    let owner = guard.owner();
    let waiting = acquiring(client.lock("k").wait(LONG));
    tokio::time::sleep(ms(600)).await;
    drop(guard);
    let next = its_turn(waiting).await;
    assert_ne!(next.owner(), owner, "the lease has ended");
    next.release().await.expect("held");
}

#[tokio::test]
async fn the_attribute_and_the_builder_retain_too() {
    #[distributed_lock(key = "tenant:<tenant>", retain = "60s", client = client)]
    async fn job(client: &LockClient, tenant: u64) -> Result<u64, LockError> {
        Ok(rlock_core::current().expect("inside").fencing_token())
    }
    let server = RedisServer::start();
    let client = builder()
        .retain(RETAIN)
        .connect(&server.url())
        .await
        .expect("the server is up");
    let first = job(&client, 7).await.expect("free");
    assert!(is_retained(&client, "tenant:7").await);
    assert!(job(&client, 7).await.expect("kept") > first);
    client.lock("k").run(async {}).await.expect("free");
    assert!(is_retained(&client, "k").await);
    let lock = client.lock("other").retain(Duration::ZERO);
    lock.run(async {}).await.expect("free");
    assert!(!server.exists(&name("other")).await);
    client.shutdown().await.expect("released");
}

#[tokio::test]
async fn a_function_with_if_taken_retains_no_lock() {
    #[distributed_lock(key = "job", if_taken = Ok(()), client = client)]
    async fn job(client: &LockClient) -> Result<(), LockError> {
        Ok(())
    }
    let client = builder().retain(RETAIN).in_memory().expect("made");
    client.lock("k").run(async {}).await.expect("free");
    assert!(is_retained(&client, "k").await);
    job(&client).await.expect("free");
    assert!(!is_retained(&client, "job").await);
}

#[tokio::test]
async fn a_retention_of_more_than_a_day_is_refused() {
    let long = Duration::from_secs(24 * 60 * 60 + 1);
    let error = builder().retain(long).in_memory().expect_err("too long");
    assert!(error.to_string().contains("`retain`"), "{error}");
    let client = LockClient::in_memory();
    let error = client.lock("k").retain(long).acquire().await;
    let error = error.expect_err("too long").to_string();
    assert!(
        error.contains("`retain`") && error.contains("24h"),
        "{error}"
    );
}

/// The background learns of the nested entry before its owner continues, or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_entry_that_is_dropped_just_before_its_hold_releases_nothing_of_the_next() {
    let server = RedisServer::start();
    let inside = rlock_testkit::Exclusion::new();
    let tasks = (0..4).map(|task| {
        let (url, inside) = (server.url(), inside.clone());
        tokio::spawn(async move {
            let client = connect(&url).await;
            let lock = client
                .lock("k")
                .lease(LASTING)
                .retain(ms(20 * (task % 2)))
                .wait(LONG);
            for _ in 0..100 {
                let guard = lock.acquire().await.expect("its turn");
                let entered = inside.enter(format!("{task}"));
                let nested = guard.scope(lock.acquire()).await.expect("enters");
                drop(entered);
                drop(nested);
                drop(guard);
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("no panic");
    }
    inside.assert_held();
    assert_soon_free(&server, "k").await;
}

/// The caller comes just when the ownership becomes idle. It does not wait for the end of the
/// retention.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_comes_when_the_lock_becomes_idle_does_not_wait() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let tasks = (0..3).map(|_| {
        let lock = client.lock("k").lease(LASTING).retain(RETAIN).wait(LONG);
        tokio::spawn(async move {
            for _ in 0..2000 {
                let guard = lock.acquire().await.expect("its turn");
                guard.release().await.expect("held");
            }
        })
    });
    let all = within(LONG, "all waits end", join_all(tasks)).await;
    for task in all {
        task.expect("no panic");
    }
    client.shutdown().await.expect("released");
}

/// The server is busy twice: first until another client has the retained lock, then until the reply for the other lock.
#[tokio::test]
async fn a_retained_lock_that_is_replaced_while_another_is_acquired_begins_no_hold() {
    let server = RedisServer::start();
    let client = client(&server).await;
    keep(&client, "p", RETAIN).await;
    let spin =
        "local function now() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end
        local ends = now() + 400
        while now() < ends do end";
    let replace = format!(
        "{spin} redis.call('DEL', KEYS[1])
        redis.call('HSET', KEYS[1], '00000000-0000-4000-8000-000000000000:1', 1)"
    );
    let name = name("p");
    let (mut replacing, mut busy) = (server.connection().await, server.connection().await);
    let lock = client.lock_all(["p", "q"]).lease(LASTING).wait(LONG);
    let both = tokio::spawn(async move {
        tokio::time::sleep(ms(200)).await;
        lock.acquire().await
    });
    let until_reply = async {
        tokio::time::sleep(ms(100)).await;
        let mut script = redis::cmd("EVAL");
        script.arg(spin).arg(0).exec_async(&mut busy).await
    };
    let mut script = redis::cmd("EVAL");
    let replaced = script.arg(&replace).arg(1).arg(&name);
    let (replaced, replied) = tokio::join!(replaced.exec_async(&mut replacing), until_reply);
    replaced.and(replied).expect("no error");
    tokio::time::sleep(ms(500)).await;
    assert!(!both.is_finished(), "another client has one of the locks");
    assert!(server.del(&name).await);
    let guard = its_turn(both).await;
    guard.release().await.expect("held");
}

/// A quorum may have taken a grant back before the request failed.
#[tokio::test]
async fn a_retained_lock_whose_request_failed_is_confirmed_before_the_next_hold() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let first = keep(&client, "k", RETAIN).await;
    tokio::time::sleep(ms(200)).await;
    server.pause();
    // The last confirmation is too old for a lease this short.
    let short = client.lock("k").lease(ms(300)).wait(ms(500));
    let failing = acquiring(short);
    tokio::time::sleep(ms(100)).await;
    let waiting = acquiring(client.lock("k").lease(LASTING).wait(LONG));
    let failed = failing.await.expect("no panic");
    assert!(failed.is_err(), "the server is paused");
    tokio::time::sleep(ms(100)).await;
    assert!(!waiting.is_finished(), "the server has to confirm it");
    server.resume();
    let guard = its_turn(waiting).await;
    assert!(guard.fencing_token() > first);
    guard.release().await.expect("held");
}
