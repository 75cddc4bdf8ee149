//! A synchronous function with several locks.

use rlock_core::distributed_lock;

use super::held::{Outcome, client, is_free_elsewhere};

#[distributed_lock(key = "s-above")]
#[distributed_lock(key = ["s-from:<from>", "s-to:<to>"])]
fn several_keys(from: u8, to: u8) -> Outcome<u8> {
    for key in ["s-above", "s-from:1", "s-to:2"] {
        assert!(!is_free_elsewhere(key), "{key}");
    }
    Ok(from + to)
}

#[test]
fn a_synchronous_function_keeps_others_out_of_all_its_locks() {
    client();
    assert_eq!(several_keys(1, 2).expect("free"), 3);
    for key in ["s-above", "s-from:1", "s-to:2"] {
        assert!(is_free_elsewhere(key), "{key}");
    }
}
