//! Witnesses of mutual exclusion, and assertions that wait.

use std::thread;

use rlock_testkit::{Exclusion, eventually, within};

use crate::{LONG, SILENCE, message};

#[test]
fn a_witness_counts_holders_and_reports_overlaps() {
    let witness = Exclusion::new();
    drop(witness.enter("a"));
    drop(witness.enter("b"));
    witness.assert_held();
    let (entries, inside) = (witness.entries(), witness.max_inside());
    assert_eq!((entries, inside, witness.inside()), (2, 1, 0));

    let inside = witness.clone().enter("c");
    drop(witness.enter("d"));
    assert_eq!(witness.max_inside(), 2);
    drop(inside);
    assert_eq!(witness.inside(), 0);
    let complaint = thread::spawn(move || witness.assert_held()).join();
    let complaint = message(complaint.expect_err("it complains"));
    assert!(
        complaint.contains("d entered while c was inside"),
        "{complaint}"
    );
}

#[test]
#[should_panic(expected = "no owner entered")]
fn a_witness_that_saw_no_holder_fails_its_test() {
    Exclusion::new().assert_held();
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
