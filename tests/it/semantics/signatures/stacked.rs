//! Functions with other attributes, or with another lock.

use std::rc::Rc;

use rlock_core::{current, distributed_lock};
use tracing::instrument;

use super::held::{Outcome, assert_free, assert_held, assert_held_here, client, run};

#[instrument]
#[distributed_lock(key = "inside-of-a-span:<id>")]
async fn inside_of_a_span(id: u8) -> Outcome<u8> {
    assert_held("inside-of-a-span:1").await;
    Ok(id)
}

#[distributed_lock(key = "around-a-span:<id>")]
#[instrument(err, skip_all, fields(id))]
async fn around_a_span(id: u8) -> Outcome<u8> {
    assert_held("around-a-span:1").await;
    Ok(id)
}

/// The span records `order` and `id`, so they count as used.
#[distributed_lock(key = "recorded")]
#[instrument(skip(_permit))]
async fn recorded(order: u64, id: u8, _permit: Rc<()>) -> Outcome {
    assert_held("recorded").await;
    Ok(())
}

#[distributed_lock(key = "recorded-here")]
#[instrument]
fn recorded_here(order: u64, id: u8) -> Outcome {
    assert_held_here("recorded-here");
    Ok(())
}

#[distributed_lock(key = "parents:<id>")]
#[instrument(parent = parent, follows_from = causes, skip(parent, causes))]
async fn has_parents(id: u8, parent: Option<tracing::Id>, causes: Vec<tracing::Id>) -> Outcome<u8> {
    Ok(id)
}

#[distributed_lock(key = "parents-here:<id>")]
#[instrument(parent = parent, follows_from = causes, skip_all)]
fn has_parents_here(id: u8, parent: Option<tracing::Id>, causes: Vec<tracing::Id>) -> Outcome<u8> {
    Ok(id)
}

#[tokio::test]
async fn a_span_below_the_lock_has_the_arguments_that_the_body_does_not_use() {
    client();
    recorded(1, 2, Rc::new(())).await.expect("free");
    assert_eq!(
        run(has_parents(1, None, Vec::new())).await.expect("free"),
        1
    );
}

#[test]
fn a_span_below_the_lock_of_a_synchronous_function_has_them_too() {
    client();
    recorded_here(1, 2).expect("free");
    assert_eq!(has_parents_here(1, None, Vec::new()).expect("free"), 1);
}

#[instrument]
#[distributed_lock(key = "span-here:<id>")]
fn inside_of_a_span_here(id: u8) -> Outcome<u8> {
    assert_held_here("span-here:1");
    Ok(id)
}

#[distributed_lock(key = "around-here:<id>")]
#[instrument(ret)]
fn around_a_span_here(id: u8) -> Outcome<u8> {
    assert_held_here("around-here:1");
    Ok(id)
}

#[distributed_lock(key = "second:<id>")]
#[distributed_lock(key = "first:<id>")]
async fn two_locks(id: u8) -> Outcome<u8> {
    assert_held("second:1").await;
    let first = client().inspect("first:1").await?;
    assert!(first.is_some(), "both are held");
    Ok(id)
}

#[distributed_lock(key = ["from:<from>", "to:<to>"])]
async fn two_keys_in_one(from: u8, to: u8) -> Outcome<u8> {
    for key in ["from:1", "to:2"] {
        assert!(client().inspect(key).await?.is_some(), "both are held");
    }
    Ok(from + to)
}

#[distributed_lock(key = "test", client = client())]
#[tokio::test]
async fn a_test_may_be_locked_from_above() -> Outcome {
    assert_eq!(current().expect("inside of a lock").key(), "test");
    assert_held("test").await;
    Ok(())
}

/// The upper attribute has already made the function synchronous when the lower one is applied.
#[tokio::test]
#[distributed_lock(key = "test-below", client = client())]
async fn a_test_may_be_locked_from_below() -> Outcome {
    assert_held("test-below").await;
    Ok(())
}

#[tokio::test]
async fn a_span_may_be_inside_or_around() {
    assert_eq!(run(inside_of_a_span(1)).await.expect("free"), 1);
    assert_eq!(run(around_a_span(1)).await.expect("free"), 1);
    let here = || (inside_of_a_span_here(1), around_a_span_here(1));
    let (inside, around) = tokio::task::spawn_blocking(here).await.expect("no panic");
    assert_eq!((inside.expect("free"), around.expect("free")), (1, 1));
}

#[tokio::test]
async fn two_locks_are_acquired_and_released() {
    assert_eq!(run(two_locks(1)).await.expect("free"), 1);
    assert_eq!(run(two_keys_in_one(1, 2)).await.expect("free"), 3);
    for key in ["first:1", "second:1", "from:1", "to:2"] {
        assert_free(key).await;
    }
}
