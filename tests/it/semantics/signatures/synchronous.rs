//! Synchronous functions with the attribute.

use rlock_core::{LockError, current, distributed_lock};

use super::held::{Outcome, assert_held_here, client, is_free_elsewhere};

#[distributed_lock(key = "s-same")]
fn enters_its_own_lock(depth: u32) -> Outcome<u32> {
    assert_held_here("s-same");
    if depth > 1 {
        return enters_its_own_lock(depth - 1);
    }
    Ok(current().expect("inside a lock").depth())
}

#[distributed_lock(key = "s-above")]
#[distributed_lock(key = ["s-from:<from>", "s-to:<to>"])]
fn several_keys(from: u8, to: u8) -> Outcome<u8> {
    for key in ["s-above", "s-from:1", "s-to:2"] {
        assert!(!is_free_elsewhere(key), "{key}");
    }
    Ok(from + to)
}

#[test]
fn a_synchronous_function_runs_under_its_locks_and_enters_those_that_it_holds() {
    client();
    assert_eq!(enters_its_own_lock(3).expect("free"), 3);
    assert_eq!(several_keys(1, 2).expect("free"), 3);
    for key in ["s-same", "s-above", "s-from:1", "s-to:2"] {
        assert!(is_free_elsewhere(key), "{key}");
    }
}

#[tokio::test]
async fn a_synchronous_function_in_a_task_returns_an_error() {
    client();
    let refused = enters_its_own_lock(1).expect_err("it would block the executor");
    assert!(
        matches!(refused, LockError::BlockingInAsync { .. }),
        "{refused:?}"
    );
    let text = refused.to_string();
    assert!(
        text.contains("s-same") && text.contains("spawn_blocking"),
        "{text}"
    );
}
