//! Checks that another owner has a lock.

use std::panic::Location;

use rlock_core::LockClient;

/// Tries to acquire the lock, and expects that another owner has it.
///
/// # Panics
///
/// Panics with the caller's location when the call acquires the lock or fails.
#[track_caller]
pub fn assert_taken(client: &LockClient, key: &str) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        match client.lock(key).try_acquire().await {
            Ok(None) => {}
            Ok(Some(guard)) => panic!("{caller}: `{key}` is free: {guard:?}"),
            Err(error) => panic!("{caller}: the check of `{key}` fails: {error}"),
        }
    }
}
