//! Elections: which of them this process leads.

use rlock_core::LockClient;
use rlock_testkit::eventually;

use super::is;
use crate::common::{
    LONG, its_turn,
    recorder::{keep_metrics, metric},
};

#[tokio::test]
async fn a_candidate_is_shown_and_a_leader_is_counted_until_it_resigns_or_loses_its_leadership() {
    const NAME: &str = "scheduler:metrics";
    keep_metrics();
    let leads = || metric("rlock_leader", &[("lock", NAME)]).unwrap_or(-1.0);
    let of_lock = |what, cause: &[(&str, &str)]| {
        let labels = [&[("lock", NAME)], cause].concat();
        metric(what, &labels).unwrap_or(-1.0)
    };
    let client = LockClient::in_memory();
    let election = client.election(NAME);
    assert_eq!(metric("rlock_leader", &[("lock", NAME)]), None);
    let held = client.lock(NAME).acquire().await.expect("free");
    let candidate = tokio::spawn(election.campaign());
    eventually(LONG, "the candidate is shown", async || is(leads(), 0)).await;
    held.release().await.expect("held");
    let leadership = its_turn(candidate).await;
    assert!(is(leads(), 1));
    // The other metrics of locks name the election, too.
    assert!(is(of_lock("rlock_held", &[]), 1));
    assert!(is(of_lock("rlock_contended_total", &[]), 1));
    leadership.resign().await.expect("led");
    assert!(is(leads(), 0), "resigned");
    let leadership = election.campaign().await.expect("free");
    assert!(is(leads(), 1));
    assert!(client.force_release(NAME).await.expect("a reply"));
    leadership.lost().await;
    eventually(LONG, "the loss is counted", async || is(leads(), 0)).await;
    assert!(is(of_lock("rlock_lost_total", &[("cause", "revoked")]), 1));
    drop(leadership);
    let election = client.election(NAME).run(async |_| is(leads(), 1));
    assert!(election.await.expect("free"), "counted in the body");
    assert!(is(leads(), 0), "the body has returned");
}
