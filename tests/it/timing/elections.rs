//! How long there is no leader, and how soon all observers know the next one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rlock_testkit::{ClientCommand, RedisServer, within};
use tokio::sync::Barrier;

use crate::{
    common::{LONG, client, ms, next_leader, observed},
    waiting::drill::{LEASE, drill},
};

#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn in_two_hundred_terms_another_process_soon_leads() {
    let all = drill(200).await;
    for (way, takeovers) in &all {
        let bound = if way.resigns() {
            ms(50)
        } else {
            LEASE + ms(200)
        };
        let longest = takeovers.iter().max().expect("there are some");
        println!(
            "{way:?}: {} takeovers in {longest:?} at most",
            takeovers.len()
        );
        assert!(*longest <= bound, "{way:?}: {takeovers:?}");
        // The machine may have ended a few terms before the operator did.
        assert!(takeovers.len() >= 25, "{way:?}: {takeovers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "scripts/test-all timing"]
async fn three_hundred_observers_learn_of_a_term_by_one_message_each() {
    const OBSERVERS: u32 = 300;
    const TERMS: u32 = 10;
    let server = RedisServer::start();
    let leader = client(&server).await;
    let seen = Arc::new(Barrier::new(OBSERVERS as usize + 1));
    let observers = (0..OBSERVERS).map(|_| client(&server));
    for observer in join_all(observers).await {
        let mut changes = observer
            .election("scheduler")
            .changes()
            .expect("a valid name");
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            let mut last = None;
            while let Some(change) = changes.next().await {
                let Some(leader) = change.leader() else {
                    continue;
                };
                assert!(leader.term > last);
                last = leader.term;
                seen.wait().await;
            }
        });
    }
    let election = leader.election("scheduler");
    let mut watch = server.watch_commands().await;
    let mut took: Vec<Duration> = Vec::new();
    for _ in 0..TERMS {
        let leadership = election.campaign().await.expect("free");
        let began = Instant::now();
        within(LONG, "all observe the term", seen.wait()).await;
        took.push(began.elapsed());
        leadership.resign().await.expect("led");
    }
    let commands = watch.seen().await;
    let mut announced = commands.iter().filter(|command| command.is("PUBLISH"));
    let is_announcement = |command: &&ClientCommand| command.words[2].starts_with("@announce");
    let announced = announced.by_ref().filter(is_announcement).count();
    let lists = commands.iter().filter(|command| command.is("PUBSUB"));
    let most = took.iter().max().copied().unwrap_or_default();
    assert_eq!(announced, (OBSERVERS * TERMS) as usize);
    // Each term begins and ends.
    assert_eq!(lists.count(), 2 * TERMS as usize);
    assert!(most <= ms(500), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "scripts/test-all timing"]
async fn three_hundred_observers_that_ask_at_once_all_learn_the_value() {
    const OBSERVERS: u32 = 300;
    let server = RedisServer::start();
    let leader = client(&server).await;
    let leadership = leader.election("scheduler").campaign().await;
    let leadership = leadership.expect("free");
    leadership.term().announce("10.0.3.7:8080").expect("leads");
    let observers = join_all((0..OBSERVERS).map(|_| client(&server))).await;
    let learning = observers.iter().map(async |observer| {
        let mut leaders = observed(&observer.election("scheduler"));
        let mut silences = 0;
        loop {
            let leader = next_leader(&mut leaders).await;
            if leader.value.is_some() {
                return silences;
            }
            silences += 1;
        }
    });
    let learned = within(LONG, "all know the value", join_all(learning)).await;
    println!("{} had no reply at first", learned.iter().sum::<u32>());
}
