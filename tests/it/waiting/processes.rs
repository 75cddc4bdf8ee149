//! Several processes and one lock.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rlock_core::{LockError, current};
use rlock_testkit::{Proxy, RedisServer, SharedExclusion, Worker, within};

use crate::common::{
    LASTING, LONG, assert_soon_free, assert_soon_queued, assert_the_lease_ends_what_a_process_left,
    client, ms, name, worker,
};

#[tokio::test]
async fn processes_enter_one_at_a_time_and_tokens_grow_in_the_order_of_entry() {
    const PROCESSES: u64 = 4;
    const TASKS: u64 = 4;
    const ENTRIES: u64 = 30;
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
        worker.expect_line(LONG * 3, "done").await;
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
    const LEASE: Duration = Duration::from_millis(1500);
    let (server, witness) = (RedisServer::start(), RedisServer::start());
    let exclusion = SharedExclusion::connect(&witness.url(), "k").await;
    let lease = LEASE.as_millis().to_string();
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
                let granted = Instant::now();
                exclusion.enter("the next").await.leave().await;
                (granted, current().expect("inside").fencing_token())
            };
            lock.run(body).await
        }
    });
    assert_soon_queued(&server, "k", 1).await;
    let token: u64 = server
        .command(&["GET", &format!("{}:fence", name("k"))])
        .await;
    victim.kill();
    exclusion.died(pid).await;
    let asked = Instant::now();
    let left = server.pttl(&name("k")).await;
    let answered = Instant::now();
    let left = ms(u64::try_from(left).expect("a time to live"));
    assert!(left <= LEASE);
    assert!(!waiting.is_finished(), "the lease has not ended");

    let (granted, next_token) = within(LONG, "the next is let in", waiting)
        .await
        .expect("no panic")
        .expect("granted");
    let after = granted - asked;
    assert!(after + ms(20) >= left, "after {after:?} of {left:?}");
    let after = granted - answered;
    assert!(after <= left + ms(1500), "after {after:?} of {left:?}");
    assert!(next_token > token);
    exclusion.assert_held().await;
    assert_eq!(exclusion.entries().await, 2);
}

#[tokio::test]
async fn a_process_that_shuts_its_client_down_leaves_no_lock() {
    let server = RedisServer::start();
    let lease = LASTING.as_millis().to_string();
    for how in ["after-shutdown", "holding-at-shutdown"] {
        let mut leaver = worker(&["leave", how, &server.url(), "k", &lease]);
        let said = leaver.remaining_lines(LONG).await;
        assert!(leaver.wait(LONG).await.success(), "{how}");
        assert!(!server.exists(&name("k")).await, "{how}");
        assert!(!said.contains(&"valid true".to_owned()), "{how}: {said:?}");
        let next = client(&server).await.lock("k").acquire().await;
        next.expect("free").release().await.expect("held");
    }
}

/// A dropped guard is released in the background, which ends with the process. The lease ends the
/// locks that were not released in time. `shutdown().await` guarantees the release.
#[tokio::test]
async fn a_process_that_just_ends_leaves_its_lock_to_the_lease_at_worst() {
    assert_the_lease_ends_what_a_process_left(&["at-once", "by-exit"], true).await;
}

#[tokio::test]
async fn a_process_that_exits_while_it_holds_is_waited_for_and_not_taken_for_alive() {
    let server = RedisServer::start();
    let mut leaver = worker(&["leave", "by-exit", &server.url(), "k", "30000"]);
    assert!(leaver.wait(LONG).await.success());
    let other = client(&server).await;
    // An exit looks like a pause, so the lease stays.
    let error = other.lock("k").wait(ms(300)).acquire().await;
    let Err(LockError::Timeout { remaining, .. }) = error else {
        panic!("{error:?}")
    };
    let remaining = remaining.expect("known");
    assert!(
        remaining > LASTING / 2 && remaining <= LASTING,
        "{remaining:?}"
    );
}

/// Ten processes want three permits ten times each. Two are paused for longer than the lease, two are cut off, and two
/// are killed.
#[tokio::test]
async fn no_more_permits_are_valid_than_there_are_while_processes_are_killed_cut_off_and_paused() {
    const MOST: usize = 3;
    const LEASE: Duration = Duration::from_millis(400);
    let server = RedisServer::start();
    let proxies = [Proxy::in_front_of(&server), Proxy::in_front_of(&server)];
    let lease = LEASE.as_millis().to_string();
    let mut workers: Vec<Worker> = (0..10)
        .map(|n: usize| {
            let url = proxies.get(n).map_or_else(|| server.url(), Proxy::url);
            worker(&["permits", &url, "k", &MOST.to_string(), &lease, "10"])
        })
        .collect();
    for worker in &mut workers {
        worker.expect_line(LONG, "ready").await;
    }
    for worker in &mut workers {
        worker.send("go");
    }
    for _ in 0..4 {
        tokio::time::sleep(LEASE).await;
        proxies.iter().for_each(Proxy::black_hole);
        workers[2..4].iter_mut().for_each(Worker::pause);
        tokio::time::sleep(LEASE * 2).await;
        proxies.iter().for_each(Proxy::pass);
        workers[2..4].iter_mut().for_each(Worker::resume);
    }
    workers[4..6].iter_mut().for_each(Worker::kill);
    let mut lines = Vec::new();
    for (n, worker) in workers.iter_mut().enumerate() {
        let said = worker.remaining_lines(LONG * 3).await;
        let is_killed = (4..6).contains(&n);
        assert_eq!(said.last().is_some_and(|line| line == "done"), !is_killed);
        lines.extend(said);
    }
    let holds = valid(&lines);
    assert!(holds.len() >= 70, "{} holds", holds.len());
    for (from, _) in &holds {
        let valid = holds
            .iter()
            .filter(|(since, until)| since <= from && from < until);
        assert!(valid.count() <= MOST, "at {from}: {holds:?}");
    }
    assert_soon_free(&server, "k").await;
}

/// Returns from when to when each permit was valid.
fn valid(lines: &[String]) -> Vec<(u64, u64)> {
    let mut holds: HashMap<&str, (u64, u64, u64)> = HashMap::new();
    for line in lines {
        let mut words = line.split(' ');
        let (Some(what), Some(token), Some(at)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let at = at.parse().expect("a time");
        match what {
            "in" => drop(holds.insert(token, (at, 0, u64::MAX))),
            "until" => holds.get_mut(token).expect("it is in").1 = at,
            _ => holds.get_mut(token).expect("it is in").2 = at,
        }
    }
    let ends = holds.into_values();
    ends.map(|(from, until, out)| (from, until.min(out)))
        .collect()
}
