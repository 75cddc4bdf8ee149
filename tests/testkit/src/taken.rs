//! That another owner has a lock.

use std::panic::Location;

use rlock_core::LockClient;

/// Tries the lock once, by this client, and is refused.
///
/// # Panics
///
/// Says where it was called when the client is given the lock, or no answer.
#[track_caller]
pub fn assert_taken(client: &LockClient, key: &str) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        match client.lock(key).try_acquire().await {
            Ok(None) => {}
            Ok(Some(guard)) => panic!("{caller}: `{key}` is to be taken, and was free: {guard:?}"),
            Err(error) => panic!("{caller}: `{key}` is to be taken, and nobody says so: {error}"),
        }
    }
}
