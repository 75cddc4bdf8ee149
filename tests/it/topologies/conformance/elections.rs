//! Elections: who leads, and who learns of it.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use rlock_core::{DrainOutcome, LockClient, LockError, LostCause, election::Election};
use rlock_testkit::{Place, eventually, within};
use tokio::{sync::mpsc, task::JoinHandle};

use super::LONG;
use crate::common::{LASTING, next_leader, nobody_leads, observed};

fn election(client: &LockClient) -> Election {
    client.election("scheduler").lease(Duration::from_secs(10))
}

pub(crate) async fn observers_learn_of_each_term_and_value(place: Place) {
    // No lease ends before the test does.
    let election = |client: &LockClient| client.election("scheduler").lease(LASTING);
    let [one, other, observer] = place.clients().await;
    let (mut near, mut far) = (observed(&election(&one)), observed(&election(&observer)));
    let mut last = None;
    for (n, candidate) in [&one, &other, &one].into_iter().enumerate() {
        let leadership = election(candidate).campaign().await.expect("free");
        let term = leadership.term();
        assert!(Some(term.token()) > last);
        last = Some(term.token());
        for leaders in [&mut near, &mut far] {
            assert_eq!(next_leader(leaders).await.term, last);
        }
        let value = format!("10.0.3.{n}:8080\n");
        term.announce(value.as_str()).expect("leads");
        for leaders in [&mut near, &mut far] {
            let leader = next_leader(leaders).await;
            assert_eq!((leader.term, leader.value.as_ref()), (last, Some(&value)));
        }
        eventually(LONG, "the leader replies", async || {
            let leader = election(&observer).leader().await.expect("a reply");
            let leader = leader.expect("it leads");
            assert!(leader.holder.is_none() || leader.value.as_ref() == Some(&value));
            leader.holder.is_some()
        })
        .await;
        leadership.resign().await.expect("led");
        for leaders in [&mut near, &mut far] {
            nobody_leads(leaders).await;
        }
        let leader = election(&observer).leader().await.expect("a reply");
        assert_eq!(leader, None);
    }
}

pub(crate) async fn an_observer_that_comes_late_learns_of_the_present_term_first(place: Place) {
    let (one, observer) = (place.client().await, place.client().await);
    let leadership = election(&one).campaign().await.expect("free");
    leadership.term().announce("first").expect("leads");
    let mut leaders = observed(&election(&observer));
    let mut leader = next_leader(&mut leaders).await;
    assert_eq!(leader.term, Some(leadership.term().token()));
    // The announcement of the term may arrive before that of the value.
    if leader.value.is_none() {
        leader = next_leader(&mut leaders).await;
    }
    assert_eq!(leader.value.as_deref(), Some("first"));
    assert_eq!(leader.holder.expect("it replies").pid, std::process::id());
}

pub(crate) async fn a_leader_resigns_when_it_is_asked_to(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let asked = election(&other).request_release().await.expect("a reply");
    assert!(!asked, "there is no leader");
    let (started, mut first) = mpsc::channel(1);
    let led = tokio::spawn(election(&one).run(move |term| {
        let started = started.clone();
        async move {
            started.send(term.clone()).await.expect("the test reads");
            term.release_requested().await;
            assert!(term.is_valid(), "the work is not interrupted");
            term.token()
        }
    }));
    let term = within(LONG, "it leads", first.recv()).await.expect("sent");
    assert!(election(&other).request_release().await.expect("a reply"));
    let token = within(LONG, "it resigns", led).await.expect("no panic");
    assert_eq!(token.expect("led"), term.token());
    assert_eq!(term.lost().await, LostCause::Released);
    assert!(!term.is_valid() && term.announce("late").is_err());
    let next = election(&other).campaign().await.expect("free");
    assert!(next.term().token() > term.token());
}

pub(crate) async fn a_leader_that_loses_its_lock_campaigns_again(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let (started, mut terms) = mpsc::channel(1);
    let led = tokio::spawn(election(&one).run(move |term| {
        let started = started.clone();
        async move {
            started.send(term).await.expect("the test reads");
            std::future::pending::<()>().await;
        }
    }));
    let first = within(LONG, "it leads", terms.recv()).await.expect("sent");
    assert!(other.force_release("scheduler").await.expect("a reply"));
    let second = within(LONG, "it leads again", terms.recv())
        .await
        .expect("sent");
    assert!(second.token() > first.token() && !first.is_valid());
    led.abort();
    assert!(within(LONG, "the task ends", led).await.is_err());
    let next = election(&other).campaign().await.expect("released");
    assert!(next.term().token() > second.token());
}

/// Which elections a client of a group leads.
#[derive(Clone, Default)]
struct Led(Arc<Mutex<BTreeSet<String>>>);

impl Led {
    fn keys(&self) -> BTreeSet<String> {
        self.0.lock().expect("no panic").clone()
    }
}

/// An election that is led until this is dropped.
struct Leads(Led, String);

impl Leads {
    fn begin(led: Led, key: &str) -> Self {
        let is_new = led.0.lock().expect("no panic").insert(key.to_owned());
        assert!(is_new, "{key} is led already");
        Self(led, key.to_owned())
    }
}

impl Drop for Leads {
    fn drop(&mut self) {
        self.0.0.lock().expect("no panic").remove(&self.1);
    }
}

/// Runs these elections in a task. Their leaders resign when they are asked to.
fn runs(client: &LockClient, shards: Range<u32>) -> (Led, JoinHandle<Result<(), LockError>>) {
    let leads = Led::default();
    let elections = client.elections("shards", shards.map(|n| format!("shard-{n}")));
    let elections = elections.lease(Duration::from_secs(10));
    let led = leads.clone();
    let run = elections.run(move |term| {
        let leads = Leads::begin(leads.clone(), term.key());
        async move {
            let _leads = leads;
            term.release_requested().await;
        }
    });
    (led, tokio::spawn(run))
}

pub(crate) async fn the_elections_of_a_group_are_led_in_equal_shares(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let (of_one, first) = runs(&one, 0..9);
    eventually(LONG, "the only client leads all", async || {
        of_one.keys().len() == 9
    })
    .await;
    let (of_other, second) = runs(&other, 0..9);
    eventually(LONG, "a client that joins leads its share", async || {
        let (one, other) = (of_one.keys(), of_other.keys());
        [(4, 5), (5, 4)].contains(&(one.len(), other.len())) && one.is_disjoint(&other)
    })
    .await;
    let drained = one.drain(LONG).await;
    assert_eq!(drained.expect("a reply"), DrainOutcome::Completed);
    first.await.expect("no panic").expect("it drained");
    eventually(LONG, "the client that is left leads all", async || {
        of_other.keys().len() == 9
    })
    .await;
    other.shutdown().await.expect("a reply");
    second.await.expect("no panic").expect("it was shut down");
}

pub(crate) async fn clients_with_other_keys_leave_no_election_without_a_leader(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let (of_one, _first) = runs(&one, 0..4);
    // If both were in one group and began at once, each would lead what is free before it learns of the other.
    eventually(
        LONG,
        "the first client leads all that it knows",
        async || of_one.keys().len() == 4,
    )
    .await;
    // The first client does not know four of these, which are more than half.
    let (of_other, _second) = runs(&other, 2..8);
    eventually(LONG, "all are led", async || {
        let (one, other) = (of_one.keys(), of_other.keys());
        one.is_disjoint(&other) && one.union(&other).count() == 8
    })
    .await;
}
