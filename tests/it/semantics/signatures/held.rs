//! Proves that a body runs inside its lock.

use std::{sync::LazyLock, time::Duration};

use rlock_core::{LockClient, LockError, current};

pub(super) type Outcome<T = ()> = Result<T, LockError>;

/// Returns the client of all functions here. The first caller installs it.
pub(super) fn client() -> &'static LockClient {
    static CLIENT: LazyLock<LockClient> = LazyLock::new(|| {
        let client = LockClient::in_memory();
        client.install();
        client
    });
    &CLIENT
}

/// Awaits a future that can be sent to another thread.
pub(super) async fn run<F: Future + Send>(future: F) -> F::Output {
    client();
    future.await
}

/// Asserts that the caller and the store agree that the lock is held.
pub(super) async fn assert_held(key: &str) {
    let hold = current().expect("inside a lock");
    assert_eq!(hold.key(), key);
    let info = client().inspect(key).await.expect("a reply");
    let owner = info.expect("it is held").owner;
    assert_eq!(owner, hold.owner());
}

/// Asserts that the lock was released.
pub(super) async fn assert_free(key: &str) {
    let info = client().inspect(key).await.expect("a reply");
    assert!(info.is_none(), "`{key}` is held");
}

/// Returns whether another thread could acquire the lock.
pub(super) fn is_free_elsewhere(key: &str) -> bool {
    let lock = client().lock(key).wait(Duration::ZERO);
    let elsewhere = std::thread::spawn(move || lock.run_blocking(|| ()));
    match elsewhere.join().expect("no panic") {
        Ok(()) => true,
        Err(LockError::Taken { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}
