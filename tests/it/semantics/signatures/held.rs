//! Proves that a body runs inside its lock.

use std::{fmt, num::ParseIntError, sync::LazyLock, time::Duration};

use rlock_core::{LockClient, LockError, current};

/// The error of a service, to which others are converted by `?`.
#[derive(Debug)]
pub(crate) enum Fail {
    Lock(LockError),
    Number(ParseIntError),
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Number(error) => error.fmt(f),
        }
    }
}

impl From<LockError> for Fail {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<ParseIntError> for Fail {
    fn from(error: ParseIntError) -> Self {
        Self::Number(error)
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Fail>;

/// Returns the client of all functions here. The first caller installs it.
pub(crate) fn client() -> &'static LockClient {
    static CLIENT: LazyLock<LockClient> = LazyLock::new(|| {
        let client = LockClient::in_memory();
        client.install();
        client
    });
    &CLIENT
}

/// Awaits a future that can be sent to another thread.
pub(crate) async fn run<F: Future + Send>(future: F) -> F::Output {
    client();
    future.await
}

/// Asserts that the caller and the store agree that the lock is held.
pub(crate) async fn assert_held(key: &str) {
    let hold = current().expect("inside of a lock");
    assert_eq!(hold.key(), key);
    let info = client().inspect(key).await.expect("a reply");
    let owner = info.expect("it is held").owner;
    assert_eq!(owner, hold.owner().to_string());
}

/// Asserts that the lock was released.
pub(crate) async fn assert_free(key: &str) {
    let info = client().inspect(key).await.expect("a reply");
    assert!(info.is_none(), "`{key}` is held");
}

/// Asserts that the caller is inside the lock, and that another thread cannot enter.
pub(crate) fn assert_held_here(key: &str) {
    assert_eq!(current().expect("inside of a lock").key(), key);
    assert!(!is_free_elsewhere(key));
}

/// Returns whether another thread could acquire the lock.
pub(crate) fn is_free_elsewhere(key: &str) -> bool {
    let lock = client().lock(key).wait(Duration::ZERO);
    let elsewhere = std::thread::spawn(move || lock.run_blocking(|| ()));
    match elsewhere.join().expect("no panic") {
        Ok(()) => true,
        Err(LockError::Timeout { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}
