//! Asynchronous functions: panics, keys, and other attributes above and below the lock's.

use rlock_core::{LockClient, current, distributed_lock};
use tracing::instrument;

use super::held::{Outcome, assert_free, assert_held, client, run};

#[distributed_lock(key = "<amount:08>:<amount:#x>:<ratio:.2>:<name:_^7>:<name:>>4>:<name:?>")]
async fn sell(amount: i32, ratio: f64, name: &str) -> Outcome<String> {
    let _ = (amount, ratio, name);
    Ok(current().expect("inside a lock").key().to_owned())
}

#[tokio::test]
async fn a_value_is_rendered_by_its_format_and_then_escaped() {
    let key = run(sell(7, 1.0 / 3.0, "a:b")).await.expect("free");
    assert_eq!(key, "00000007:0x7:0.33:__a%3Ab__: a%3Ab:\"a%3Ab\"");
}

#[distributed_lock(key = ["renamed:<id>"], crate = ::renamed, client = client)]
async fn by_a_renamed_crate(id: u8, client: &LockClient) -> Outcome<u8> {
    assert_held("renamed:7").await;
    Ok(id)
}

#[instrument]
#[distributed_lock(key = "in-a-span:<id>")]
async fn in_a_span(id: u8) -> Outcome<u8> {
    assert_held("in-a-span:1").await;
    by_a_renamed_crate(7, client()).await?;
    Ok(id)
}

#[distributed_lock(key = "second:<id>")]
#[distributed_lock(key = "first:<id>")]
#[instrument(err, skip_all, fields(id))]
async fn around_a_span(id: u8) -> Outcome<u8> {
    assert_held("second:1").await;
    let first = client().inspect("first:1").await?;
    assert!(first.is_some(), "both are held");
    Ok(id)
}

/// The upper attribute has already made the function synchronous when the lower one is applied.
#[tokio::test]
#[distributed_lock(key = "below-a-test", client = client())]
async fn locks_spans_and_tests_stack_in_every_order() -> Outcome {
    assert_held("below-a-test").await;
    assert_eq!(run(in_a_span(1)).await?, 1);
    assert_eq!(run(around_a_span(1)).await?, 1);
    for key in ["in-a-span:1", "first:1", "second:1", "renamed:7"] {
        assert_free(key).await;
    }
    Ok(())
}
