//! The log lines of losses and outages. Each loss is logged once, by the first component that
//! notices it.

use std::{cell::RefCell, thread, time::Duration};

use futures_util::{FutureExt, future::join_all};
use rlock_core::{InCurrentScope, Lock, LockClient, LockGuard, LostCause, Reentry};
use rlock_testkit::{Gate, Proxy, RedisServer, Way, eventually, within};
use tokio::{runtime::Builder, time::timeout};

use crate::common::log::{keep_log, logged_of};
use crate::common::{
    LASTING, LONG, acquiring, assert_lost, assert_soon_queued, cause_of, client, connect, its_turn,
    ms, name, resp2_client,
};

/// The number of repetitions of each loss.
const TIMES: usize = 24;

/// The keys of a test. No two tests share a key, and none is a prefix of another.
fn keys(test: &str) -> Vec<String> {
    (0..TIMES).map(|n| format!("{test}-{n}-")).collect()
}

#[tokio::test]
async fn calls_that_disagree_on_the_number_of_permits_log_a_warning() {
    keep_log();
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = one.lock("disputed").permits(3).acquire().await;
    let late = other.lock("disputed").permits(1).wait(ms(1_500));
    assert!(late.acquire().await.is_err(), "one permit is taken");
    drop(held);
    let lines = logged_of("calls disagree on the number of permits");
    assert!(
        matches!(&lines[..], [line] if line.contains("disputed") && line.contains("mine=1 theirs=3")),
        "{lines:?}"
    );
}

fn losses(key: &str) -> Vec<String> {
    let mut lines = logged_of(&format!("key={key} "));
    lines.retain(|line| line.contains("lock lost"));
    lines
}

/// Asserts that each loss is logged once with this cause, and that no line follows.
async fn assert_reported_once(test: &str, cause: LostCause) {
    for key in keys(test) {
        eventually(LONG, "the loss is logged", async || {
            !losses(&key).is_empty()
        })
        .await;
    }
    tokio::time::sleep(ms(300)).await;
    for key in keys(test) {
        let lines = losses(&key);
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].contains("WARN"), "{}", lines[0]);
        assert!(lines[0].contains(&cause.to_string()), "{}", lines[0]);
    }
}

async fn for_each_key(test: &str, lose: impl AsyncFn(String)) {
    keep_log();
    join_all(keys(test).into_iter().map(|key| lose(key))).await;
}

/// Returns a client whose watchdog cannot run while this thread is blocked.
fn client_here(reentry: Reentry) -> LockClient {
    let builder = LockClient::builder().tokio_time();
    builder.reentry(reentry).in_memory().expect("a client")
}

fn short(client: &LockClient, key: &str) -> Lock {
    client.lock(key).lease(ms(40)).watchdog(false)
}

async fn sleep_past_the_lease() {
    thread::sleep(ms(50));
    // The watchdog may run before or after the next poll of the body.
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn an_expiry_is_reported_once_by_the_watchdog_the_body_or_the_guard() {
    const TEST: &str = "expired";
    keep_log();
    let here = client_here(Reentry::Counted);
    let threaded = LockClient::in_memory();
    for (n, key) in keys(TEST).iter().enumerate() {
        match n % 6 {
            0 => {
                let outcome = short(&here, key).run(sleep_past_the_lease()).await;
                assert_eq!(cause_of(outcome), Some(LostCause::Expired));
            }
            1 => {
                let guard = short(&here, key).acquire().await.expect("free");
                thread::sleep(ms(50));
                assert!(!guard.is_valid());
                assert_eq!(cause_of(guard.release().await), Some(LostCause::Expired));
            }
            2 => {
                let guard = short(&here, key).acquire().await.expect("free");
                thread::sleep(ms(50));
                drop(guard);
            }
            3 => {
                let guard = short(&threaded, key).acquire().await.expect("free");
                assert_eq!(guard.lost().await, LostCause::Expired);
            }
            4 => {
                let lock = short(&threaded, key);
                let outcome = lock.run(std::future::pending::<()>()).await;
                assert_eq!(cause_of(outcome), Some(LostCause::Expired));
            }
            _ => {
                let lock = short(&threaded, key);
                let body = move || lock.run_blocking(|| thread::sleep(ms(80)));
                let outcome = tokio::task::spawn_blocking(body).await.expect("no panic");
                assert_eq!(cause_of(outcome), Some(LostCause::Expired));
            }
        }
    }
    assert_reported_once(TEST, LostCause::Expired).await;
}

#[tokio::test]
async fn an_expiry_that_a_nested_call_notices_is_reported_once() {
    for (test, reentry) in [
        ("nested-local", Reentry::Local),
        ("nested-counted", Reentry::Counted),
    ] {
        keep_log();
        let client = client_here(reentry);
        for key in keys(test) {
            let lock = short(&client, &key);
            let guard = lock.acquire().await.expect("free");
            thread::sleep(ms(50));
            let nested = guard.scope(lock.acquire()).await;
            assert_eq!(cause_of(nested), Some(LostCause::Expired));
            drop(guard);
        }
        assert_reported_once(test, LostCause::Expired).await;
    }
}

#[tokio::test]
async fn a_removal_that_the_server_reports_is_reported_once() {
    const TEST: &str = "removed";
    let server = RedisServer::start();
    let client = client(&server).await;
    for_each_key(TEST, async |key| {
        let lock = client.lock(&key).lease(LASTING);
        let body = async {
            assert!(server.del(&name(&key)).await);
            std::future::pending::<()>().await;
        };
        let outcome = lock.run(Box::pin(lock.run(body))).await;
        assert_eq!(cause_of(outcome), Some(LostCause::Removed));
    })
    .await;
    assert_reported_once(TEST, LostCause::Removed).await;
}

#[tokio::test]
async fn a_removal_that_a_renewal_finds_is_reported_once() {
    const TEST: &str = "renewed";
    let server = RedisServer::start();
    let client = resp2_client(&server).await;
    for_each_key(TEST, async |key| {
        let guard = client.lock(&key).lease(ms(6000)).acquire().await;
        let guard = guard.expect("free");
        assert!(server.del(&name(&key)).await);
        let cause = within(LONG, "it is found", guard.lost()).await;
        assert_eq!(cause, LostCause::Removed);
        assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
    })
    .await;
    assert_reported_once(TEST, LostCause::Removed).await;
}

#[tokio::test]
async fn a_removal_that_only_the_release_finds_is_reported_once() {
    const TEST: &str = "released";
    let server = RedisServer::start();
    let client = resp2_client(&server).await;
    for_each_key(TEST, async |key| {
        let guard = client.lock(&key).lease(LASTING).acquire().await;
        let guard = guard.expect("free");
        assert!(server.del(&name(&key)).await);
        if key.len() % 2 == 0 {
            drop(guard);
        } else {
            assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
        }
    })
    .await;
    assert_reported_once(TEST, LostCause::Removed).await;
}

#[tokio::test]
async fn a_removal_that_a_nested_call_finds_is_reported_once() {
    const TEST: &str = "entered";
    let server = RedisServer::start();
    let client = resp2_client(&server).await;
    for_each_key(TEST, async |key| {
        let lock = client.lock(&key).lease(LASTING);
        let guard = lock.acquire().await.expect("free");
        assert!(server.del(&name(&key)).await);
        let nested = guard.scope(lock.acquire()).await;
        assert_eq!(cause_of(nested), Some(LostCause::Removed));
        assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
    })
    .await;
    assert_reported_once(TEST, LostCause::Removed).await;
}

#[tokio::test]
async fn each_hold_that_a_shutdown_ends_is_reported_once() {
    const TEST: &str = "closed";
    keep_log();
    let client = LockClient::in_memory();
    let bodies = keys(TEST).into_iter().enumerate().map(|(n, key)| {
        let lock = client.lock(key);
        tokio::spawn(async move {
            if n % 2 == 0 {
                cause_of(lock.run(std::future::pending::<()>()).await)
            } else {
                let guard = lock.acquire().await.expect("free");
                Some(guard.lost().await)
            }
        })
    });
    let bodies: Vec<_> = bodies.collect();
    for key in keys(TEST) {
        eventually(LONG, "it is held", async || {
            client.inspect(&key).await.expect("a reply").is_some()
        })
        .await;
    }
    client.shutdown().await.expect("released");
    for body in join_all(bodies).await {
        assert_eq!(body.expect("no panic"), Some(LostCause::Closed));
    }
    assert_reported_once(TEST, LostCause::Closed).await;
}

#[tokio::test]
async fn a_hold_beyond_its_max_hold_is_reported_once_and_in_time() {
    const TEST: &str = "max-hold";
    const LIMIT: Duration = Duration::from_millis(50);
    let client = LockClient::in_memory();
    let lock = async |key: &str, lease: Duration| client.lock(key).lease(lease).max_hold(LIMIT);
    for_each_key(TEST, async |key| {
        if key.len().is_multiple_of(2) {
            let lock = lock(&key, LASTING).await;
            let outcome = lock.run(std::future::pending::<()>()).await;
            assert_eq!(cause_of(outcome), Some(LostCause::MaxHold));
            return;
        }
        // Only the watchdog checks this guard, until its lease ends.
        let guard = lock(&key, ms(400)).await.acquire().await.expect("free");
        eventually(LONG, "it is logged", async || !losses(&key).is_empty()).await;
        tokio::time::sleep(ms(500)).await;
        assert_eq!(guard.lost().await, LostCause::MaxHold);
        assert_eq!(cause_of(guard.release().await), Some(LostCause::MaxHold));
    })
    .await;
    assert_reported_once(TEST, LostCause::MaxHold).await;

    let guard = client.lock("hangs").lease(LASTING).max_hold(LIMIT);
    let guard = guard.acquire().await.expect("free");
    eventually(ms(5000), "the loss is logged without a check", async || {
        !losses("hangs").is_empty()
    })
    .await;
    drop(guard);
}

#[tokio::test]
async fn the_max_hold_of_a_body_and_its_guard_is_reported_once() {
    const TEST: &str = "max-hold-kept";
    let client = LockClient::in_memory();
    for_each_key(TEST, async |key| {
        let lock = client.lock(&key).lease(LASTING).max_hold(ms(50));
        let kept = RefCell::new(None);
        let body = async {
            let guard = rlock_core::current().expect("inside").guard();
            kept.replace(Some(guard.expect("held")));
            std::future::pending::<()>().await;
        };
        assert_eq!(cause_of(lock.run(body).await), Some(LostCause::MaxHold));
        let guard = kept.take().expect("it began");
        assert_lost(&guard, LONG, LostCause::MaxHold).await;
        assert_eq!(cause_of(guard.release().await), Some(LostCause::MaxHold));
    })
    .await;
    assert_reported_once(TEST, LostCause::MaxHold).await;
}

#[tokio::test]
async fn a_release_in_time_is_not_reported_as_a_loss() {
    const TEST: &str = "in-time";
    let server = RedisServer::start();
    let client = client(&server).await;
    for_each_key(TEST, async |key| {
        let lock = client.lock(&key).lease(ms(900));
        let kept = lock.run(async {
            tokio::time::sleep(ms(400)).await;
            rlock_core::current().expect("inside")
        });
        let kept = kept.await.expect("free");
        assert_eq!(kept.lost().await, LostCause::Released);
        drop(lock.acquire().await.expect("free"));
    })
    .await;
    tokio::time::sleep(ms(1500)).await;
    client.shutdown().await.expect("released");
    for key in keys(TEST) {
        assert_eq!(losses(&key), Vec::<String>::new());
    }
}

/// The reply to the first release is lost. At the second, another owner has the lock.
#[tokio::test]
async fn a_release_that_was_cancelled_after_it_was_done_is_not_reported_as_a_loss() {
    keep_log();
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let (one, other) = (connect(&proxy.url()).await, client(&server).await);
    for n in 0..5 {
        let key = format!("cancelled-{n}-");
        let lock = one.lock(&key).lease(LASTING);
        let guard = lock.acquire().await.expect("free");
        proxy.hold_replies();
        let releasing = tokio::spawn(guard.release());
        eventually(LONG, "it is done", async || {
            !server.exists(&name(&key)).await
        })
        .await;
        let next = other.lock(&key).acquire().await.expect("free");
        let mut watch = server.watch_commands().await;
        releasing.abort();
        let _ = releasing.await;
        eventually(LONG, "it is sent again", async || {
            watch.count_of("EVALSHA").await > 0
        })
        .await;
        proxy.pass();
        tokio::time::sleep(ms(300)).await;
        next.release().await.expect("untouched");
        assert_eq!(losses(&key), Vec::<String>::new());
    }
}

fn failures(key: &str) -> Vec<String> {
    let mut lines = logged_of(&format!("key={key} "));
    lines.retain(|line| line.contains("renewal failed"));
    lines
}

#[tokio::test]
async fn each_failed_renewal_is_logged_when_it_fails_and_none_after_the_loss() {
    const LEASE: Duration = Duration::from_secs(6);
    keep_log();
    let server = RedisServer::start();
    let check = async |key: &str, fails: fn(&Proxy)| {
        let proxy = Proxy::in_front_of(&server);
        let client = connect(&proxy.url()).await;
        let guard = client.lock(key).lease(LEASE).acquire().await.expect("free");
        fails(&proxy);
        eventually(LONG, "the first failure is logged", async || {
            !failures(key).is_empty()
        })
        .await;
        assert!(
            guard.valid_for() >= LEASE / 4,
            "{key}: there is time to act: {:?} are left",
            guard.valid_for()
        );
        let first = failures(key).remove(0);
        for field in [
            "WARN",
            "attempt=1",
            "holds=1",
            "remaining=",
            "owner=",
            "error=",
        ] {
            assert!(first.contains(field), "{field}: {first}");
        }
        assert_lost(&guard, LONG, LostCause::Expired).await;
        tokio::time::sleep(ms(500)).await;
        let lines = logged_of(&format!("key={key} "));
        let attempts = failures(key);
        assert!((3..=4).contains(&attempts.len()), "{lines:#?}");
        // On a busy machine a late line has the number of the next attempt.
        let number = |line: &String| (1..=4).find(|n| line.contains(&format!("attempt={n} ")));
        let numbers: Option<Vec<u32>> = attempts.iter().map(number).collect();
        let numbers = numbers.expect("each has a number");
        assert!(numbers.is_sorted_by(|one, next| one < next), "{lines:#?}");
        let last = lines.iter().rfind(|line| !line.contains("TRACE"));
        assert!(
            last.is_some_and(|line| line.contains("lock lost")),
            "{lines:#?}"
        );
        drop(guard);
    };
    let refused = |proxy: &Proxy| {
        proxy.refuse();
        proxy.reset();
    };
    tokio::join!(check("silent", Proxy::hold), check("refused", refused));
}

#[tokio::test]
async fn an_outage_that_ends_before_the_leases_is_logged_at_its_begin_and_end() {
    const LOCKS: usize = 200;
    keep_log();
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let locks: Vec<_> = (0..LOCKS)
        .map(|n| client.lock(format!("outage-{n}-")).lease(ms(12_000)))
        .collect();
    let guards = join_all(locks.iter().map(Lock::acquire)).await;
    let guards: Vec<_> = guards
        .into_iter()
        .map(|guard| guard.expect("free"))
        .collect();
    let infos = || {
        let mut lines = logged_of(&proxy.address());
        lines.retain(|line| line.contains(" INFO "));
        lines
    };
    assert_eq!(infos(), Vec::<String>::new());
    proxy.refuse();
    proxy.reset();
    eventually(LONG, "its start is logged", async || !infos().is_empty()).await;
    let failed = || {
        let mut lines = logged_of("key=outage-");
        lines.retain(|line| line.contains("renewal failed"));
        lines
    };
    eventually(LONG, "a renewal fails", async || !failed().is_empty()).await;
    proxy.pass();
    eventually(LONG, "its end is logged", async || infos().len() > 1).await;
    tokio::time::sleep(ms(1000)).await;
    let infos = infos();
    assert_eq!(infos.len(), 2, "{infos:#?}");
    assert!(infos[0].contains("connection lost"), "{infos:#?}");
    assert!(infos[1].contains("connected again"), "{infos:#?}");
    assert!(infos[1].contains("after="), "{infos:#?}");
    let failed = failed();
    assert!(
        failed.len() <= 8,
        "one line for a message, not for each lock: {failed:#?}"
    );
    assert!(guards.iter().all(rlock_core::LockGuard::is_valid));
    join_all(guards.into_iter().map(rlock_core::LockGuard::release)).await;
    assert_eq!(
        logged_of("key=outage-")
            .iter()
            .filter(|line| line.contains("lock lost"))
            .count(),
        0
    );
}

#[tokio::test]
async fn a_silent_server_is_logged_once_and_so_is_its_return() {
    keep_log();
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let guard = client
        .lock("s")
        .lease(ms(9000))
        .acquire()
        .await
        .expect("free");
    proxy.hold();
    let infos = || {
        let mut lines = logged_of(&proxy.address());
        lines.retain(|line| line.contains(" INFO "));
        lines
    };
    eventually(LONG, "its start is logged", async || !infos().is_empty()).await;
    proxy.pass();
    eventually(LONG, "its end is logged", async || infos().len() > 1).await;
    tokio::time::sleep(ms(500)).await;
    let infos = infos();
    assert_eq!(infos.len(), 2, "{infos:#?}");
    assert!(infos[0].contains("the server is silent"), "{infos:#?}");
    assert!(infos[1].contains("connected again"), "{infos:#?}");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn the_first_connection_is_not_connected_again() {
    keep_log();
    let server = RedisServer::start();
    let client = client(&server).await;
    client.lock("k").run(async {}).await.expect("free");
    tokio::time::sleep(ms(500)).await;
    let lines = logged_of(&server.address());
    let again = lines.iter().filter(|line| line.contains("connected again"));
    assert_eq!(again.count(), 0, "{lines:#?}");
}

/// A nested acquire that is cancelled leaves its release to the background. The background releases
/// after the guard's own release, or before it if another guard keeps both waiting.
#[tokio::test]
async fn a_lock_that_is_released_twice_is_not_lost() {
    keep_log();
    let server = RedisServer::start();
    let builder = LockClient::builder().reentry(Reentry::Counted);
    let holder = builder.connect(&server.url()).await.expect("it is up");
    let other = client(&server).await;
    for key in ["given-back-before-", "given-back-after-"] {
        let lock = holder.lock(key).lease(LASTING);
        let guard = lock.acquire().await.expect("free");
        let waiting = acquiring(other.lock(key).lease(LASTING).wait(LONG));
        tokio::time::sleep(ms(200)).await;

        let nested = || {
            let lock = lock.clone();
            async move { lock.acquire().await.map(drop) }.in_current_scope()
        };
        let (first, second) = guard.scope(async { (nested(), nested()) }).await;
        let (mut first, mut second) = (Box::pin(first), Box::pin(second));
        assert!((&mut first).now_or_never().is_none());
        drop(first);
        if key.contains("before") {
            assert!((&mut second).now_or_never().is_none());
            tokio::time::sleep(ms(200)).await;
        }
        let mut release = Box::pin(guard.release());
        assert!((&mut release).now_or_never().is_none());
        drop(second);
        let released = within(LONG, "the release", release).await;
        assert!(released.is_ok(), "{key}: {released:?}");
        drop(its_turn(waiting).await);
        tokio::time::sleep(ms(200)).await;
        assert!(losses(key).is_empty(), "{:#?}", losses(key));
    }
}

/// A subscriber's thread-locals may have been destroyed before.
#[test]
fn a_loss_that_is_first_noticed_in_a_threads_destructor_is_reported_elsewhere() {
    thread_local! {
        static KEPT: RefCell<Option<LockGuard>> = const { RefCell::new(None) };
    }
    const KEY: &str = "destructor-";
    keep_log();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let guard = runtime.block_on(async {
        let client = client_here(Reentry::Counted);
        short(&client, KEY).acquire().await.expect("free")
    });
    let ends = thread::spawn(move || {
        KEPT.set(Some(guard));
        tracing::info!("thread-locals are dropped in the reverse order of their first use");
        thread::sleep(ms(50));
    });
    ends.join().expect("no panic");
    runtime.block_on(eventually(LONG, "the loss is logged", async || {
        !losses(KEY).is_empty()
    }));
    assert!(losses(KEY)[0].contains(&LostCause::Expired.to_string()));
}

#[tokio::test]
async fn a_loss_after_a_hand_off_names_the_second_that_the_lock_had() {
    keep_log();
    let server = RedisServer::start();
    let holder = client(&server).await;
    for n in 0..20 {
        let key = format!("handed-off-{n}-");
        let gate = Gate::in_front_of(&server);
        let waiter = connect(&gate.url()).await;
        let held = holder.lock(&key).acquire().await.expect("free");
        let waiting = acquiring(waiter.lock(&key).lease(LASTING).wait(LONG));
        assert_soon_queued(&server, &key, 1).await;
        for connection in 0..gate.connections() {
            gate.hold(connection, Way::Requests);
        }
        held.release().await.expect("held");
        // On a busy machine the waiter may have been silent for so long that it asks first.
        let Ok(granted) = timeout(ms(500), waiting).await else {
            continue;
        };
        let guard = granted.expect("no panic").expect("handed off");
        // The client replaces the connections after a third of the second.
        server.pause();
        assert_lost(&guard, LONG, LostCause::Expired).await;
        eventually(LONG, "it is logged", async || !losses(&key).is_empty()).await;
        let line = losses(&key).remove(0);
        let (_, lease) = line.split_once("lease=").expect("it has the lease");
        let millis = lease
            .split("ms")
            .next()
            .and_then(|lease| lease.parse::<f64>().ok());
        let is_grace = lease.starts_with("1s") || millis.is_some_and(|millis| millis < 1000.0);
        assert!(is_grace, "{line}");
        return;
    }
    panic!("the waiter never relied on the message");
}
