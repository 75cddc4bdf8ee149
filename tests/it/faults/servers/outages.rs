//! What an outage costs a service whose calls all time out.

use futures_util::future::join_all;
use rlock_core::{LockError, LockGuard};
use rlock_testkit::{RedisCluster, RedisServer, eventually};

use crate::common::{
    LONG,
    alone::alone,
    assert_soon_free, connect_with, hold,
    log::{keep_log, logged, logged_of},
    ms, name,
};

/// How many tasks make calls, and how many locks are held.
const TASKS: usize = 200;
const HELD: usize = 20;

/// Only the first call of each task is sent, because the server is known to be silent by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_logged_once_and_calls_that_are_not_sent_need_no_release() {
    alone!(an_outage_is_logged_once_and_calls_that_are_not_sent_need_no_release);
    keep_log();
    let server = RedisServer::start();
    let client = connect_with(ms(300), &server.url()).await;
    let lock = |name: &str, n: usize| client.lock(format!("{name}:{n}")).lease(ms(1500));
    let held = (0..HELD).map(|n| lock("held", n).acquire());
    let held: Result<Vec<LockGuard>, LockError> = join_all(held).await.into_iter().collect();
    let held = held.expect("free");
    server.pause();
    drop(held);
    let task = async |task: usize| {
        for call in 0..5 {
            let acquire = lock("new", 5 * task + call).wait(ms(10)).acquire();
            let error = acquire.await.expect_err("an outage");
            assert!(error.is_outage(), "{error:?}");
        }
    };
    join_all((0..TASKS).map(task)).await;
    eventually(LONG, "the releases are given up", async || {
        logged_of("release given up").len() == HELD + TASKS
    })
    .await;
    let given_up = logged_of("release given up").concat();
    assert_eq!(given_up.matches("was_held=true").count(), HELD);
    eventually(LONG, "a warning", async || {
        !logged_of("could not release in the background").is_empty()
    })
    .await;
    let log = logged();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert!((1..=3).contains(&warnings.len()), "{warnings:#?}");
    server.resume();
    drop(hold(&client, "new:0").await);
}

/// All calls are sent before the server is known to be silent, and may be executed when it resumes.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn calls_that_time_out_keep_little_memory_until_they_are_released() {
    use crate::common::{LASTING, only_tokens_are_left};

    const CALLS: usize = 10_000;
    alone!(calls_that_time_out_keep_little_memory_until_they_are_released);
    let server = RedisServer::start();
    let client = connect_with(ms(5000), &server.url()).await;
    let calls = async |from: usize, outcome: fn(Result<LockGuard, LockError>)| {
        let each = (from..from + CALLS).map(|call| {
            let lock = client.lock(format!("new:{call}")).lease(LASTING);
            async move { outcome(lock.wait(ms(10)).acquire().await) }
        });
        join_all(each).await;
    };
    // The first calls of an outage grow buffers and pools, on a busy machine by more than the calls keep.
    calls(0, drop).await;
    assert_soon_free(&server, &format!("new:{}", CALLS - 1)).await;
    server.pause();
    let fails = |outcome: Result<_, LockError>| {
        assert!(outcome.expect_err("an outage").is_outage());
    };
    calls(0, fails).await;
    let before = resident();
    calls(CALLS, fails).await;
    let grown = resident().saturating_sub(before);
    println!("{CALLS} calls keep {grown} KiB");
    assert!(grown <= 12 * 1024);
    server.resume();
    eventually(LONG, "all are released", async || {
        only_tokens_are_left(&server).await
    })
    .await;
}

/// The calls leave more releases than are in flight at once, and each of these waits until its lease has ended.
#[tokio::test]
async fn a_dropped_guard_does_not_wait_for_the_releases_of_an_outage_elsewhere() {
    const CALLS: usize = 4000;
    alone!(a_dropped_guard_does_not_wait_for_the_releases_of_an_outage_elsewhere);
    keep_log();
    let cluster = RedisCluster::start().await;
    let client = connect_with(LONG, &cluster.url()).await;
    let silent = cluster.key_at(0, "silent").await;
    let guard = hold(&client, &cluster.key_at(1, "held").await).await;
    drop(hold(&client, &silent).await);
    assert_soon_free(cluster.node(0), &silent).await;
    cluster.node(0).pause();
    let calls = join_all((0..CALLS).map(|call| {
        let lock = client.lock(format!("{{{silent}}}:{call}"));
        lock.lease(ms(15_000)).acquire()
    }));
    let cancelled = tokio::time::timeout(ms(1000), calls).await;
    cancelled.expect_err("an outage");
    let lock = name(guard.key());
    drop(guard);
    eventually(LONG, "the lock is released", async || {
        !cluster.node(1).exists(&lock).await
    })
    .await;
    assert_eq!(logged_of("release given up"), Vec::<String>::new());
    eventually(LONG, "the others are given up", async || {
        !logged_of("release given up").is_empty()
    })
    .await;
}

/// Returns the resident bytes of this process, in KiB.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let size = line.and_then(|line| line.split_whitespace().next());
    size.expect("a size").parse().expect("a number")
}
