//! Witnesses of who is inside a lock, and assertions that wait.

use std::thread;

use rlock_testkit::{Witness, eventually, within};

use crate::{LONG, SILENCE, message};

#[test]
fn a_witness_counts_entries_and_reports_overlaps() {
    let witness = Witness::new();
    drop(witness.enter("a"));
    let inside = witness.enter("b");
    witness.assert_held();
    assert_eq!((witness.entries(), witness.most_inside()), (2, 1));
    drop(witness.clone().enter("c"));
    drop(inside);
    assert_eq!(witness.most_inside(), 2);
    let complaint = thread::spawn(move || witness.assert_held()).join();
    let complaint = message(complaint.expect_err("it complains"));
    assert!(
        complaint.contains("c entered while b was inside"),
        "{complaint}"
    );
}

#[test]
#[should_panic(expected = "no call entered")]
fn a_witness_that_saw_no_call_fails_its_test() {
    Witness::new().assert_held();
}

#[tokio::test]
async fn eventually_and_within_name_the_event_that_does_not_come() {
    let mut tries = 0;
    eventually(LONG, "the third try", async || {
        tries += 1;
        tries == 3
    })
    .await;
    let never = tokio::spawn(eventually(SILENCE, "pigs fly", async || false)).await;
    let panic = never.expect_err("it panics").into_panic();
    assert!(message(panic).contains("pigs fly"));
    let forever = within(SILENCE, "the end of time", std::future::pending::<()>());
    let panic = tokio::spawn(forever).await;
    let panic = panic.expect_err("it panics").into_panic();
    assert!(message(panic).contains("the end of time"));
}
