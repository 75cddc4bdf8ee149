//! What observers learn of a leader that is cut off, killed or silent, and which announcements they believe.

use std::collections::BTreeSet;

use rlock_core::{
    LockClient, Token,
    election::{Election, LeaderChange, LeaderInfo},
};
use rlock_testkit::{
    ClientCommand, Proxy, RedisCluster, RedisServer, Trio, Worker, eventually, within,
};
use tokio::sync::mpsc;

use super::drill::LEASE;
use crate::common::{
    LASTING, LONG, assert_soon_queued, client, connect, connect_with, ms, name, next_leader,
    nobody_leads, observed, resp2, worker,
};

fn election(client: &LockClient) -> Election {
    client.election("scheduler").lease(LASTING)
}

/// Waits until this term is observed.
async fn observes(
    leaders: &mut mpsc::UnboundedReceiver<LeaderChange>,
    term: impl Into<u64>,
) -> LeaderInfo {
    let term = term.into();
    let latest = async {
        loop {
            let leader = next_leader(leaders).await;
            let seen = leader.term.map(Token::as_u64);
            assert!(seen <= Some(term), "{leader:?} after {term}");
            if seen == Some(term) {
                return leader;
            }
        }
    };
    within(LONG, "the term is observed", latest).await
}

#[tokio::test]
async fn an_observer_that_was_cut_off_learns_of_the_present_term_when_it_is_connected_again() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let mut near = observed(&election(&client(&server).await));
    for of_protocol in [str::to_owned as fn(&str) -> String, resp2] {
        let proxy = Proxy::in_front_of(&server);
        let mut far = observed(&election(&connect(of_protocol(&proxy.url())).await));
        for cut in [Proxy::cut_off, Proxy::black_hole, Proxy::half_close] {
            let first = election(&one).campaign().await.expect("free");
            observes(&mut far, first.term().token()).await;
            cut(&proxy);
            first.resign().await.expect("led");
            let second = election(&other).campaign().await.expect("free");
            let term = second.term().token();
            observes(&mut near, term).await;
            // The announcement has passed the server, or is behind this request.
            assert!(election(&other).leader().await.expect("a reply").is_some());
            proxy.pass();
            observes(&mut far, term).await;
            second.resign().await.expect("led");
        }
    }
}

#[tokio::test]
async fn a_leader_that_is_cut_off_after_its_grant_announces_its_term_when_it_is_connected_again() {
    let server = RedisServer::start();
    let mut leaders = observed(&election(&client(&server).await));
    // Its own questions are over before requests are counted.
    nobody_leads(&mut leaders).await;
    for command in ["PUBSUB", "PUBLISH"] {
        let proxy = Proxy::in_front_of(&server);
        let leader = connect_with(ms(2000), &proxy.url()).await;
        proxy.drop_requests_to(command, 2);
        let leadership = election(&leader).campaign().await.expect("free");
        let term = leadership.term();
        observes(&mut leaders, term.token()).await;
        assert_eq!(proxy.requests_lost(), 2, "{command}");
        // Longer than a request waits.
        proxy.cut_off();
        term.announce("10.0.3.7:8080").expect("it holds the lock");
        tokio::time::sleep(ms(2500)).await;
        proxy.pass();
        let value = observes(&mut leaders, term.token()).await.value;
        assert_eq!(value.as_deref(), Some("10.0.3.7:8080"));
        leadership.resign().await.expect("led");
    }
}

/// Campaigns again and again in a task. Each body lasts until its term ends.
fn campaigning(client: &LockClient) -> mpsc::UnboundedReceiver<u64> {
    let (sender, terms) = mpsc::unbounded_channel();
    let run = election(client).run(move |term| {
        let _ = sender.send(term.token().as_u64());
        std::future::pending::<()>()
    });
    tokio::spawn(run);
    terms
}

async fn leads(terms: &mut mpsc::UnboundedReceiver<u64>) -> u64 {
    let term = within(LONG, "it leads", terms.recv()).await;
    term.expect("it campaigns")
}

#[tokio::test]
async fn observers_learn_of_the_leader_that_follows_when_the_server_restarts_empty() {
    let server = RedisServer::start();
    let (one, observer) = (client(&server).await, client(&server).await);
    let (mut terms, mut leaders) = (campaigning(&one), observed(&election(&observer)));
    let first = leads(&mut terms).await;
    observes(&mut leaders, first).await;
    server.restart();
    let second = leads(&mut terms).await;
    assert!(second > first);
    observes(&mut leaders, second).await;
}

#[tokio::test]
async fn observers_learn_of_the_leader_that_follows_after_a_failover() {
    let trio = Trio::start().await;
    let one = connect(&trio.url()).await;
    let (other, observer) = (connect(&trio.url()).await, connect(&trio.url()).await);
    let mut leaders = observed(&election(&observer));
    let first = election(&one).campaign().await.expect("free");
    observes(&mut leaders, first.term().token()).await;
    trio.replica.catch_up_with(&trio.master).await;
    trio.lose_master().await;
    let second = async {
        trio.failed_over().await;
        first.resign().await.expect("the new master has the lock");
        election(&other).campaign().await.expect("free")
    };
    let second = within(LONG * 2, "another leads", second).await;
    observes(&mut leaders, second.term().token()).await;
}

/// The messages pass through any master of a cluster, not through that of the lock alone.
#[tokio::test]
async fn observers_learn_of_a_leader_while_another_master_of_the_cluster_is_paused() {
    let cluster = RedisCluster::start().await;
    let (leader, observer) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let key = cluster.key_at(0, "k").await;
    let mut changes = observed(&observer.election(&key));
    for paused in [1, 2] {
        cluster.node(paused).pause();
        let election = leader.election(&key).lease(LASTING);
        let leadership = election.campaign().await.expect("free");
        let term = leadership.term().token();
        let seen = next_leader(&mut changes).await;
        assert_eq!(seen.term, Some(term));
        leadership.resign().await.expect("led");
        cluster.node(paused).resume();
    }
}

#[tokio::test]
async fn an_observer_asks_a_leader_again_that_did_not_reply() {
    let (server, witness) = (RedisServer::start(), RedisServer::start());
    let lease = LASTING.as_millis().to_string();
    let (url, witness) = (server.url(), witness.url());
    let mut leader = worker(&["elect", &url, &witness, "scheduler", &lease]);
    leader.expect_line(LONG, "ready").await;
    let client = client(&server).await;
    eventually(LONG, "it has announced its value", async || {
        let present = election(&client).leader().await.expect("a reply");
        present.is_some_and(|leader| leader.value.is_some())
    })
    .await;
    leader.pause();
    let mut leaders = observed(&election(&client));
    // The observer asks as well in this time.
    let silent = election(&client).leader().await.expect("a reply");
    assert_eq!(silent.expect("it has the lock").holder, None);
    assert!(
        leaders.try_recv().is_err(),
        "only the leader knows its term"
    );
    leader.resume();
    let value = next_leader(&mut leaders).await.value;
    assert_eq!(value, Some(leader.pid().to_string()));
}

#[tokio::test]
async fn observers_learn_that_nobody_leads_when_the_lease_of_a_killed_leader_has_ended_and_not_before()
 {
    let (server, witness) = (RedisServer::start(), RedisServer::start());
    let (url, witness) = (server.url(), witness.url());
    let lease = LEASE * 5;
    let millis = lease.as_millis().to_string();
    let mut leader = worker(&["elect", &url, &witness, "scheduler", &millis]);
    leader.expect_line(LONG, "ready").await;
    let client = client(&server).await;
    let mut changes = observed(&election(&client));
    let first = next_leader(&mut changes).await.term;
    // Renewals that the observer does not see are no end of the term.
    tokio::time::sleep(lease + LEASE).await;
    while let Ok(change) = changes.try_recv() {
        let leader = change.leader().expect("it leads");
        assert_eq!(leader.term, first);
    }
    leader.kill();
    nobody_leads(&mut changes).await;
    assert_eq!(election(&client).leader().await.expect("a reply"), None);
}

#[tokio::test]
async fn a_client_that_shuts_down_tells_observers_that_it_no_longer_leads() {
    let server = RedisServer::start();
    let (leader, observer) = (client(&server).await, client(&server).await);
    let mut changes = observed(&election(&observer));
    nobody_leads(&mut changes).await;
    for drains in [true, false] {
        let one = if drains {
            leader.clone()
        } else {
            client(&server).await
        };
        let leadership = election(&one).lease(LASTING).campaign().await;
        let leadership = leadership.expect("free");
        next_leader(&mut changes).await;
        if drains {
            drop(leadership);
            one.drain(LONG).await.expect("a reply");
        } else {
            one.shutdown().await.expect("a reply");
            drop(leadership);
        }
        drop(one);
        nobody_leads(&mut changes).await;
    }
}

#[tokio::test]
async fn the_elections_of_a_killed_process_are_led_by_the_others_of_its_group() {
    let server = RedisServer::start();
    let (url, lease) = (server.url(), (LEASE * 5).as_millis().to_string());
    let start = || worker(&["shards", &url, "8", &lease]);
    let led = async |worker: &mut Worker, shares: usize| {
        let mut led = BTreeSet::new();
        while led.len() < shares {
            let line = worker.line(LONG).await.expect("it runs");
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "leads" => assert!(led.insert(words[1].to_owned()), "{line}"),
                "ends" => assert!(led.remove(words[1]), "{line}"),
                _ => panic!("{line}"),
            }
        }
        led
    };
    let mut first = start();
    led(&mut first, 8).await;
    let mut second = start();
    let share = led(&mut second, 4).await;
    first.kill();
    let rest = led(&mut second, 4).await;
    assert!(share.is_disjoint(&rest), "{share:?} and {rest:?}");
}

#[tokio::test]
async fn the_question_who_leads_does_not_wait_for_candidates_that_are_silent() {
    let server = RedisServer::start();
    let (leader, candidate) = (client(&server).await, client(&server).await);
    let leadership = election(&leader).campaign().await.expect("free");
    let waiting = tokio::spawn(election(&candidate).campaign());
    assert_soon_queued(&server, "scheduler", 1).await;
    let observer = client(&server).await;
    let mut watch = server.watch_commands().await;
    let present = election(&observer).leader().await.expect("a reply");
    assert_eq!(
        present.and_then(|leader| leader.term),
        Some(leadership.term().token())
    );
    let is_question =
        |command: &&ClientCommand| command.is("PUBLISH") && command.words[2].starts_with("@ask");
    let asked = watch.seen().await.iter().filter(is_question).count();
    assert_eq!(asked, 1, "the leader");
    waiting.abort();
}

/// Returns the channel and the fields of the last announcement of a leader to the only other client.
async fn announcement(proxy: &Proxy) -> (String, Vec<String>) {
    let announced = || {
        let requests = proxy.requests().into_iter();
        let mut words = requests.map(|request| request.words);
        words.rfind(|words| words.len() == 3 && words[2].starts_with(b"@announce"))
    };
    eventually(LONG, "it announces its term", async || {
        announced().is_some()
    })
    .await;
    let words = announced().expect("it has").into_iter();
    let mut texts = words.map(|word| String::from_utf8(word).expect("a text"));
    let (channel, message) = (texts.nth(1), texts.next());
    let fields = message.expect("it has three words");
    (
        channel.expect("it has three words"),
        fields.split('\t').map(str::to_owned).collect(),
    )
}

/// The position of the token in an announcement.
const TOKEN: usize = 6;

#[tokio::test]
async fn observers_ignore_impossible_terms_and_drop_a_forged_one_once_the_leader_announces() {
    const LARGEST: u64 = (1 << 53) - 1;
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let (leader, observer) = (connect(&proxy.url()).await, client(&server).await);
    let mut changes = observed(&election(&observer));
    let leadership = election(&leader).campaign().await.expect("free");
    let term = leadership.term().token();
    let first = next_leader(&mut changes).await;
    assert_eq!(first.term, Some(term));
    let (channel, mut fields) = announcement(&proxy).await;
    // An earlier term has ended, and only the last one is small enough for a token.
    for forged in [term.as_u64() - 1, u64::MAX, LARGEST + 1, LARGEST] {
        fields[TOKEN] = forged.to_string();
        let message = fields.join("\t");
        let heard: u64 = server.command(&["PUBLISH", &channel, &message]).await;
        assert_eq!(heard, 1);
    }
    let misled = next_leader(&mut changes).await;
    assert_eq!(misled.term.map(Token::as_u64), Some(LARGEST));
    assert!(leadership.term().is_valid());
    let present = election(&observer).leader().await.expect("a reply");
    assert_eq!(present.and_then(|leader| leader.term), Some(term));
    leadership.term().announce("10.0.3.7:8080").expect("leads");
    let present = next_leader(&mut changes).await;
    assert_eq!(
        (present.term, present.value.as_deref()),
        (Some(term), Some("10.0.3.7:8080"))
    );
}

/// The store issues a smaller term if it has lost its data and its clock went back.
#[tokio::test]
async fn observers_believe_a_leader_whose_term_is_smaller_than_the_latest() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let (leader, observer) = (connect(&proxy.url()).await, client(&server).await);
    let mut changes = observed(&election(&observer));
    let former = election(&leader).campaign().await.expect("free");
    let first = next_leader(&mut changes).await;
    assert_eq!(first.term, Some(former.term().token()));
    let (channel, mut fields) = announcement(&proxy).await;
    let later = former.token().as_u64() + (1 << 40);
    fields[TOKEN] = later.to_string();
    let _: u64 = server
        .command(&["PUBLISH", &channel, &fields.join("\t")])
        .await;
    let seen = next_leader(&mut changes).await;
    assert_eq!(seen.term.map(Token::as_u64), Some(later));
    former.resign().await.expect("led");
    let next = election(&leader).campaign().await.expect("free");
    let term = next.term().token();
    assert!(term.as_u64() < later);
    let seen = next_leader(&mut changes).await;
    assert_eq!(seen.term, Some(term));
}

#[tokio::test]
async fn an_observer_that_the_store_refuses_waits_for_announcements() {
    let server = RedisServer::start();
    let (leader, observer) = (client(&server).await, client(&server).await);
    let () = server.command(&["SET", &name("scheduler"), "x"]).await;
    let mut watch = server.watch_commands().await;
    let mut leaders = observed(&election(&observer));
    let mut asked = async || {
        let commands = watch.seen().await.iter();
        let about_it = commands.filter(|command| command.words.contains(&name("scheduler")));
        about_it.count()
    };
    let ask = async {
        while asked().await == 0 {
            tokio::time::sleep(ms(5)).await;
        }
    };
    within(LONG, "it asks who leads", ask).await;
    // It would have asked several times by then. If its subscription began after the first question, it has asked twice.
    tokio::time::sleep(ms(1500)).await;
    assert!(asked().await <= 2);
    server.del(&name("scheduler")).await;
    let leadership = election(&leader).campaign().await.expect("free");
    observes(&mut leaders, leadership.term().token()).await;
}
