//! Each loss is logged once, by the first component that notices it.

use std::{cell::RefCell, future::pending, thread};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockGuard, LostCause, testing::use_tokio_clock};
use rlock_testkit::{Proxy, RedisServer, eventually, within};
use tokio::{runtime::Builder, sync::mpsc};

use crate::common::{
    LASTING, LONG, assert_lost, cause_of, client, connect,
    log::{keep_log, logged_of, logged_with},
    ms, name, resp2_client,
};

fn lines_of(key: &str, text: &str) -> Vec<String> {
    logged_with(&[&format!("key={key} "), text])
}

/// Returns the lines that log the loss of the lock with this key.
pub(super) fn losses(key: &str) -> Vec<String> {
    lines_of(key, "lock lost")
}

#[tokio::test]
async fn a_deleted_lock_is_logged_as_lost_once_whichever_request_finds_it() {
    keep_log();
    let server = RedisServer::start();
    let (notified, unnotified) = (client(&server).await, resp2_client(&server).await);
    let keys: Vec<_> = (0..20).map(|n| format!("removed-{n}-")).collect();
    let removals = keys.iter().enumerate().map(async |(n, key)| {
        let client = if n % 5 == 0 { &notified } else { &unnotified };
        let lease = if matches!(n % 5, 1 | 2) {
            ms(9000)
        } else {
            LASTING
        };
        let lock = client.lock(key).lease(lease);
        let remove = async || assert!(server.del(&name(key)).await);
        if n % 5 == 0 {
            let body = async {
                remove().await;
                pending::<()>().await;
            };
            let outcome = lock.run(Box::pin(lock.run(body))).await;
            return assert_eq!(cause_of(outcome), Some(LostCause::Removed));
        }
        let guard = lock.acquire().await.expect("free");
        remove().await;
        match n % 5 {
            1 => assert_lost(&guard, LONG, LostCause::Removed).await,
            2 => {
                assert_lost(&guard, LONG, LostCause::Removed).await;
                let nested = guard.scope(lock.acquire()).await;
                assert_eq!(cause_of(nested), Some(LostCause::Removed));
            }
            3 => return drop(guard),
            _ => {}
        }
        assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
    });
    join_all(removals).await;
    for key in &keys {
        eventually(LONG, "it is logged", async || !losses(key).is_empty()).await;
    }
    tokio::time::sleep(ms(300)).await;
    for key in &keys {
        let lines = losses(key);
        assert_eq!(lines.len(), 1, "{lines:#?}");
        let cause = LostCause::Removed.to_string();
        assert!(lines[0].contains("WARN") && lines[0].contains(&cause));
    }
}

#[tokio::test]
async fn a_leader_that_loses_its_lock_logs_one_warning_and_that_it_campaigns_again() {
    const KEY: &str = "lost-leader-";
    keep_log();
    let client = LockClient::in_memory();
    let (led, mut terms) = mpsc::unbounded_channel();
    let run = client.election(KEY).run(move |term| {
        led.send(term.token()).expect("the test waits");
        pending::<()>()
    });
    let running = tokio::spawn(run);
    within(LONG, "it leads", terms.recv()).await.expect("runs");
    assert!(client.force_release(KEY).await.expect("a reply"));
    within(LONG, "it leads again", terms.recv())
        .await
        .expect("runs");
    running.abort();
    let warnings = logged_with(&[KEY, " WARN "]);
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains("lock lost"), "{warnings:#?}");
    let again = logged_with(&[KEY, " campaigning again after a loss "]);
    assert_eq!(again.len(), 1);
}

/// The thread-locals of a tracing subscriber may have been destroyed before the guard.
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
        // The watchdog of this client runs only while the runtime does.
        let client = use_tokio_clock(LockClient::builder());
        let client = client.in_memory().expect("a client");
        let lock = client.lock(KEY).lease(ms(40)).watchdog(false);
        lock.acquire().await.expect("free")
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
async fn each_failed_renewal_is_logged_when_it_fails_and_none_after_the_loss() {
    /// The first attempt is due after ten seconds.
    const LEASE: std::time::Duration = ms(30_000);
    keep_log();
    let server = RedisServer::start();
    let check = async |key: &str, fails: fn(&Proxy)| {
        let proxy = Proxy::in_front_of(&server);
        let client = connect(&proxy.url()).await;
        let guard = client.lock(key).lease(LEASE);
        let guard = guard.acquire().await.expect("free");
        fails(&proxy);
        let failures = || lines_of(key, "renewal failed");
        eventually(LONG, "the first failure is logged", async || {
            !failures().is_empty()
        })
        .await;
        let first = failures().remove(0);
        let fields = ["attempt=", "holds=1", "remaining=", "owner=", "error="];
        for part in ["WARN"].iter().chain(&fields) {
            assert!(first.contains(part), "{part}: {first}");
        }
        assert_lost(&guard, LONG, LostCause::Expired).await;
        tokio::time::sleep(ms(500)).await;
        let lines = logged_of(&format!("key={key} "));
        // On a busy machine a late line has the number of the next attempt.
        let number = |line: &String| (1..=5).find(|n| line.contains(&format!("attempt={n} ")));
        let numbers: Option<Vec<u32>> = failures().iter().map(number).collect();
        let numbers = numbers.expect("each has a number");
        assert!(numbers.is_sorted_by(|one, next| one < next), "{lines:#?}");
        assert!(
            numbers.len() > 1,
            "each is logged when it fails: {lines:#?}"
        );
        let last = lines.iter().rfind(|line| !line.contains("TRACE"));
        let is_loss = last.is_some_and(|line| line.contains("lock lost"));
        assert!(is_loss, "{lines:#?}");
    };
    tokio::join!(
        check("silent", Proxy::hold),
        check("refused", Proxy::cut_off)
    );
}
