//! Elections: campaigns, terms, announcements and resignation.

use std::{
    future::pending,
    panic::AssertUnwindSafe,
    time::{Duration, Instant, SystemTime},
};

use futures_util::{FutureExt as _, StreamExt as _};
use pollster::block_on;
use rlock_core::{
    DrainOutcome, ErrorKind, LockClient, LockError, LostCause, election::LeaderChange,
};
use rlock_testkit::{Witness, within};
use tokio::sync::mpsc;

use crate::common::{LONG, assert_soon_waits, connect, here, leader_of, two_clients};

#[tokio::test]
async fn a_body_that_panics_ends_its_term_and_the_panic_comes_out() {
    let client = LockClient::in_memory();
    let election = client.election("scheduler");
    let run = election.run(async |_| panic!("a fault of the body"));
    let panic = AssertUnwindSafe(run).catch_unwind().await.unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"a fault of the body"));
    assert!(election.leader().await.expect("a reply").is_none());
}

#[tokio::test]
async fn a_body_has_ended_before_another_process_leads() {
    let client = LockClient::in_memory();
    let inside = Witness::new();
    let candidates = (0..8).map(|_| {
        let (election, inside) = (client.election("scheduler"), inside.clone());
        tokio::spawn(async move {
            let run = election.run(async |_| {
                let _alone = inside.hold(&here());
                tokio::task::yield_now().await;
            });
            run.await
        })
    });
    for candidate in candidates.collect::<Vec<_>>() {
        candidate.await.expect("alone").expect("led");
    }
    inside.assert_held();
}

#[tokio::test]
async fn a_body_is_inside_the_lock_of_its_term() {
    let client = LockClient::in_memory();
    let run = client.election("scheduler").run(async |term| {
        assert_eq!(
            (term.token(), term.fence()),
            (here().token(), here().fence())
        );
        client
            .lock("scheduler")
            .run(async {})
            .await
            .expect("enters");
    });
    run.await.expect("led");
}

#[tokio::test]
async fn a_client_that_shuts_down_ends_its_leaders_and_observers() {
    let client = LockClient::in_memory();
    let election = client.election("scheduler");
    let mut changes = Box::pin(election.changes().expect("a valid name").into_stream());
    let led = tokio::spawn(election.run(|_| pending::<()>()));
    assert!(changes.next().await.is_some());
    client.shutdown().await.expect("the store replies");
    let error = led.await.expect("no panic").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closing, "{error}");
    assert!(changes.next().await.is_none());
}

#[tokio::test]
async fn a_term_that_is_not_read_is_skipped_and_the_latest_is_not() {
    let client = LockClient::in_memory();
    let election = client.election("scheduler");
    let mut changes = election.changes().expect("a valid name");
    for _ in 0..5 {
        let term = election.campaign().await.expect("free");
        term.resign().await.expect("led");
    }
    let last = election.campaign().await.expect("free");
    while leader_of(&mut changes).await.term < Some(last.term().token()) {}
}

#[tokio::test]
async fn a_leader_that_resigns_for_a_candidate_that_waits_leaves_no_gap_for_observers() {
    let [one, other] = two_clients("memory:no-gap").await;
    let observer = connect("memory:no-gap").await;
    let mut changes = observer.election("scheduler").changes().expect("valid");
    let mut leader = one.election("scheduler").campaign().await.expect("free");
    for next in [&other, &one].into_iter().cycle().take(10) {
        let candidate = tokio::spawn(next.election("scheduler").campaign());
        assert_soon_waits(&observer, "scheduler", 1).await;
        while leader_of(&mut changes).await.term != Some(leader.token()) {}
        leader.resign().await.expect("led");
        leader = candidate.await.expect("no panic").expect("leads");
        let change = within(LONG, "the next term is observed", changes.next()).await;
        let term = change.and_then(LeaderChange::leader).and_then(|it| it.term);
        assert_eq!(term, Some(leader.token()), "it follows at once");
        let _ = leader.announce("seen");
    }
}

#[tokio::test]
async fn a_client_that_no_longer_runs_its_elections_leaves_them_to_the_others_of_its_group() {
    let [one, other] = two_clients("memory:leaves-its-group").await;
    let run = |client: &LockClient| {
        let (sender, terms) = mpsc::unbounded_channel();
        let elections = client.elections("shards", ["a", "b", "c"]);
        let run = elections.run(move |term| {
            let _ = sender.send(term.key().to_owned());
            async move { term.release_requested().await }
        });
        (tokio::spawn(run), terms)
    };
    let (first, mut of_one) = run(&one);
    for _ in 0..3 {
        within(LONG, "it leads", of_one.recv()).await.expect("runs");
    }
    let (_second, mut of_other) = run(&other);
    within(LONG, "it leads its share", of_other.recv()).await;
    first.abort();
    let mut led = 1;
    while led < 3 {
        within(LONG, "it leads the others", of_other.recv()).await;
        led += 1;
    }
}

#[tokio::test]
async fn elections_with_an_invalid_key_or_option_are_an_error() {
    let client = LockClient::in_memory();
    for elections in [
        client.elections("shards", ["a", ""]),
        client
            .elections("", Vec::<String>::new())
            .lease(Duration::ZERO),
        client.elections("shards", ["a"]).max_hold(Duration::ZERO),
    ] {
        let run = elections.run(async |_| ());
        let error = within(LONG, "it ends", run).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[tokio::test]
async fn a_value_that_is_too_long_or_too_late_is_an_error() {
    let client = LockClient::in_memory();
    let leadership = client.election("scheduler").campaign().await.expect("free");
    let term = leadership.term().clone();
    term.announce("x".repeat(1024)).expect("it fits");
    term.announce("").expect("it withdraws the value");
    let leader = client.election("scheduler").leader().await;
    assert_eq!(leader.expect("a reply").expect("it leads").value, None);
    let error = term.announce("x".repeat(1025)).unwrap_err().to_string();
    assert!(
        error.starts_with("invalid value of 1025 bytes for `announce`"),
        "{error}"
    );
    leadership.resign().await.expect("led");
    assert!(matches!(term.announce("late"), Err(LockError::Lost { .. })));
    assert!(client.election("").changes().is_err());
    let invalid = client.election("scheduler").lease(Duration::ZERO);
    let error = invalid.run(async |_| ()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_client_that_retains_its_locks_keeps_none_that_it_has_resigned_from() {
    let client = LockClient::builder().default_retain(LONG).in_memory();
    let client = client.expect("made");
    let election = client.election("scheduler");
    let leadership = election.campaign().await.expect("free");
    leadership.resign().await.expect("led");
    let is_taken = async || {
        client
            .inspect("scheduler")
            .await
            .expect("a reply")
            .is_some()
    };
    assert!(!is_taken().await);
    // Another lock of the same key is retained, but no client leads.
    client.lock("scheduler").run(async {}).await.expect("free");
    assert!(is_taken().await);
    assert_eq!(election.leader().await.expect("a reply"), None);
}

#[tokio::test]
async fn a_change_that_is_read_late_has_the_begin_of_its_term() {
    let client = LockClient::in_memory();
    let election = client.election("scheduler");
    let (mut soon, mut late) = (
        election.changes().expect("a valid name"),
        election.changes().expect("a valid name"),
    );
    let _leadership = election.campaign().await.expect("free");
    leader_of(&mut soon).await;
    let pause = Duration::from_millis(100);
    tokio::time::sleep(pause).await;
    let since = leader_of(&mut late).await.since;
    assert!(since.expect("it replied") + pause <= SystemTime::now());
}

#[tokio::test]
async fn errors_and_debug_texts_leave_a_redacted_name_out() {
    let client = LockClient::builder().redact_keys(true).in_memory();
    let client = client.expect("made");
    let secret = client.election("secret");
    let changes = secret.changes().expect("a valid name");
    assert!(!format!("{changes:?}").contains("secret"), "{changes:?}");
    let error = client.election("secret}").changes().unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_leader_that_loses_each_term_at_once_pauses_longer_and_longer() {
    let [client, other] = two_clients("memory:brief-terms").await;
    let (sender, mut terms) = mpsc::unbounded_channel();
    let run = client.election("scheduler").run(move |term| {
        let _ = sender.send(term.token());
        pending::<()>()
    });
    let (led, began) = (tokio::spawn(run), Instant::now());
    for _ in 0..9 {
        within(LONG, "it leads", terms.recv()).await.expect("runs");
        let lost = other.force_release("scheduler").await;
        assert!(lost.expect("a reply"));
    }
    // At least half of 10, 20, 40 … milliseconds.
    assert!(began.elapsed() >= Duration::from_millis(500));
    led.abort();
}

#[tokio::test]
async fn a_client_that_drains_begins_no_term_and_asks_its_leaders_to_resign() {
    let [one, other] = two_clients("memory:a-leader-drains").await;
    let (started, begins) = tokio::sync::oneshot::channel();
    let mut started = Some(started);
    let led = tokio::spawn(one.election("scheduler").run(move |term| {
        let started = started.take().expect("the only term");
        async move {
            started.send(()).expect("the test waits");
            term.release_requested().await;
            assert!(term.is_valid());
        }
    }));
    begins.await.expect("it leads");
    let candidate = tokio::spawn(other.election("scheduler").campaign());
    assert_soon_waits(&other, "scheduler", 1).await;
    let drained = other.drain(LONG).await;
    assert_eq!(drained.expect("a reply"), DrainOutcome::Completed);
    let error = candidate.await.expect("no panic").unwrap_err();
    assert!(matches!(error, LockError::Draining { .. }), "{error}");
    let drained = one.drain(LONG).await;
    assert_eq!(drained.expect("a reply"), DrainOutcome::Completed);
    led.await.expect("no panic").expect("led");
    let late = one.election("scheduler").run(async |_| ()).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Closing);
}

#[tokio::test]
async fn a_term_that_hangs_ends_with_its_max_hold() {
    let client = LockClient::in_memory();
    let election = client
        .election("scheduler")
        .max_hold(Duration::from_millis(20));
    let leadership = election.campaign().await.expect("free");
    assert_eq!(leadership.lost().await, LostCause::MaxHold);
}

#[test]
fn an_executor_without_timers_campaigns_again_after_a_loss() {
    let store = "memory:without-timers";
    let connect = || block_on(LockClient::builder().connect(store)).expect("made");
    let (client, other) = (connect(), connect());
    let mut first = true;
    let run = client.election("scheduler").run(|_| {
        let (is_first, other) = (std::mem::take(&mut first), other.clone());
        async move {
            if is_first {
                let lost = other.force_release("scheduler").await;
                assert!(lost.expect("a reply"));
                pending::<()>().await;
            }
        }
    });
    block_on(run).expect("leads again");
}
