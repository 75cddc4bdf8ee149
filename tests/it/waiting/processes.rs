//! Several processes and one lock.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::current;
use rlock_testkit::{RedisServer, SharedExclusion, Worker, assert_taken, within};

use crate::common::{LASTING, LONG, assert_soon_queued, client, name, worker};

/// A lease that does not end within any test.
const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test]
async fn processes_enter_one_at_a_time_and_tokens_grow_in_the_order_of_entry() {
    const PROCESSES: u64 = 3;
    const TASKS: u64 = 3;
    const ENTRIES: u64 = 20;
    let (server, witness) = (RedisServer::start(), RedisServer::start());
    let exclusion = SharedExclusion::connect(&witness.url(), "k").await;
    let (tasks, entries) = (TASKS.to_string(), ENTRIES.to_string());
    let mut workers: Vec<Worker> = (0..PROCESSES)
        .map(|_| {
            let (url, witness) = (server.url(), witness.url());
            worker(&["contend", &url, &witness, "k", &tasks, &entries])
        })
        .collect();
    for worker in &mut workers {
        worker.expect_line(LONG, "ready").await;
    }
    for worker in &mut workers {
        worker.send("go");
    }
    let done = workers.iter_mut().map(async |worker| {
        worker.expect_line(LONG, "done").await;
        assert!(worker.wait(LONG).await.success());
    });
    join_all(done).await;

    exclusion.assert_held().await;
    let all = PROCESSES * TASKS * ENTRIES;
    assert_eq!(exclusion.entries().await, all);
    let tokens: Vec<u64> = witness.command(&["LRANGE", "tokens:k", "0", "-1"]).await;
    assert_eq!(tokens.len() as u64, all);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert!(!server.exists(&name("k")).await, "all have left");
}

#[tokio::test]
async fn the_lock_of_a_process_that_is_killed_inside_passes_on_when_its_lease_ends() {
    let (server, witness) = (RedisServer::start(), RedisServer::start());
    let exclusion = SharedExclusion::connect(&witness.url(), "k").await;
    let lease = HOUR.as_millis().to_string();
    let (url, witness) = (server.url(), witness.url());
    let mut victim = worker(&["die-inside", &url, &witness, "k", &lease]);
    victim.expect_line(LONG, "inside").await;
    let pid = victim.pid();

    let client = client(&server).await;
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    let waiting = tokio::spawn({
        let exclusion = exclusion.clone();
        async move {
            let body = async {
                exclusion.enter("the next").await.leave().await;
                current().expect("inside").fencing_token()
            };
            lock.run(body).await
        }
    });
    assert_soon_queued(&server, "k", 1).await;
    let holder: Vec<String> = server.command(&["HKEYS", &name("k")]).await;
    let fence: u64 = server
        .command(&["GET", &format!("{}:fence", name("k"))])
        .await;
    victim.kill();
    exclusion.died(pid).await;
    let now: Vec<String> = server.command(&["HKEYS", &name("k")]).await;
    assert_eq!(now, holder, "its lease has not ended");
    // No client renews the lease, so its end can be brought forward.
    let _: u64 = server.command(&["PEXPIRE", &name("k"), "100"]).await;
    let next = within(LONG, "the next is let in", waiting).await;
    let token = next.expect("no panic").expect("granted");
    assert!(token > fence * 128);
    exclusion.assert_held().await;
    assert_eq!(exclusion.entries().await, 2);
}

/// A dropped guard is released in the background, which ends with the process. An exit looks like a pause, so the lease
/// stays. Only `shutdown().await` guarantees the release.
#[tokio::test]
async fn a_process_that_just_ends_leaves_its_lock_to_the_lease_at_worst() {
    let server = RedisServer::start();
    let (other, lease) = (client(&server).await, HOUR.as_millis().to_string());
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
