//! Tools for the tests of a service: simulated outages, losses, clocks and errors.
//!
//! They need the feature `testing`, which `cargo add --dev rlock-core --features testing` enables for tests only. All
//! of them are functions of this module that take a client or its builder, so what only a test may do shows at its
//! call, and the client itself has none of it.
//!
//! | to test | use |
//! | --- | --- |
//! | a store that is down | [`simulate_outage`] |
//! | a lock that is lost | [`simulate_loss`] |
//! | a lease that ends, or a tick that is due or [missed](crate::once::Once::Missed) | [`use_clock`] and [`Clock::advance`] |
//! | a wait that ends | [`use_tokio_clock`], in a runtime whose clock is paused |
//! | code that maps errors | [`error`], [`lost_error`] |
//! | two instances of a service | two clients that [connect](crate::LockClient::connect) to the same `memory:name` |
//!
//! # Examples
//!
//! ```
//! use rlock_core::{ErrorKind, LockClient, testing};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), rlock_core::LockError> {
//! let client = LockClient::in_memory();
//! let outage = testing::simulate_outage(&client)?;
//! let error = client.lock("order:42").try_acquire().await.expect_err("the store is down");
//! assert_eq!(error.kind(), ErrorKind::Outage); // 503
//! drop(outage);
//! assert!(client.lock("order:42").try_acquire().await?.is_some());
//! # Ok(())
//! # }
//! ```

mod errors;

use std::time::Duration;

pub use self::errors::{error, lost_error};
use crate::client::{ClockOption, LockClient, LockClientBuilder};
pub use crate::{clock::Clock, store::memory::SimulatedOutage};
use crate::{
    error::LockError,
    store::{StoreError, memory::MemoryStore},
};

/// Makes the embedded store unreachable for all of its clients until the returned value is dropped. Use it to
/// test how a service behaves without its server, for example that it replies with status 503.
///
/// While the outage lasts, every request fails at once, as if the server refused the connection. Requests that
/// ask once, such as [`try_acquire`](crate::Lock::try_acquire), return [`LockError::Unavailable`]. An acquire with
/// a `wait` tries again until that ends. A lock that is held survives an outage that is shorter than the
/// rest of its lease, because its client goes on trying to renew it. After that it is lost, with
/// [`LostCause::Expired`](crate::LostCause::Expired). Connections do not break, so the client does not check its
/// locks when the outage ends, as it does when it has connected to a server again.
///
/// If outages overlap, the store is reachable again after the last one has ended.
///
/// # Errors
///
/// [`LockError::Closed`] after shutdown. [`LockError::Refused`] if the store is not the embedded one: stop the
/// server instead.
///
/// # Examples
///
/// ```
/// use rlock_core::{LockClient, testing};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rlock_core::LockError> {
/// let client = LockClient::in_memory();
/// let outage = testing::simulate_outage(&client)?;
/// assert!(client.ping().await.is_err());
/// drop(outage);
/// client.ping().await
/// # }
/// ```
pub fn simulate_outage(client: &LockClient) -> Result<SimulatedOutage, LockError> {
    let action = || "simulate an outage".to_owned();
    let store = embedded(client, action, "stop the server instead")?;
    Ok(store.simulate_outage())
}

/// Removes the lock of this key from the embedded store and hands it off to the next waiter. Returns `true` if
/// the lock was held. Use it to test how a service handles the loss of a lock.
///
/// The holder loses the lock with [`LostCause::Removed`](crate::LostCause::Removed), as if its key had been deleted on a
/// server. Its client notices that in the background, so wait for [`lost`](crate::Hold::lost) or for the result of the
/// call before you assert that the hold is no longer valid.
///
/// # Errors
///
/// [`LockError::InvalidKey`] for an invalid key, [`LockError::Closed`] after shutdown, and
/// [`LockError::Unavailable`] during a [simulated outage](simulate_outage). [`LockError::Refused`] if the store is not
/// the embedded one: use [`force_release`](LockClient::force_release) instead.
///
/// # Examples
///
/// ```
/// use rlock_core::{LockClient, LockError, testing};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// let client = LockClient::in_memory();
/// let body = client.lock("order:42").run(async {
///     assert!(testing::simulate_loss(&client, "order:42").expect("the embedded store"));
///     std::future::pending::<()>().await; // a long body
/// });
/// assert!(matches!(body.await, Err(LockError::Lost { .. })));
/// # Ok(())
/// # }
/// ```
pub fn simulate_loss(client: &LockClient, key: &str) -> Result<bool, LockError> {
    let key = client.key(key)?;
    let action = || format!("simulate the loss of lock `{key}`");
    let store = embedded(client, action, "use `force_release` instead")?;
    let was_held = store.simulate_loss(&key);
    was_held.map_err(|error| error.into_lock_error(action(), Duration::ZERO))
}

fn embedded<'a>(
    client: &'a LockClient,
    action: impl Fn() -> String,
    way_out: &str,
) -> Result<&'a MemoryStore, LockError> {
    let core = client.core();
    if core.is_closed() {
        return Err(LockError::closed(action()));
    }
    core.store
        .embedded()
        .ok_or_else(|| StoreError::not_embedded(way_out).into_lock_error(action(), Duration::ZERO))
}

/// Lets the client go by the clock of the Tokio runtime that it is made in, where it also runs its background tasks. So
/// `tokio::time::pause` and `tokio::time::advance` control leases and waits in tests with the embedded store.
///
/// While a Tokio clock is paused and all tasks wait, it jumps to the next timer. So a wait of ten minutes takes no
/// time, and locks are renewed as they would be in real time. The windows of [ticks](crate::once) go by this clock, too. Pausing needs a current-thread runtime and the
/// feature `test-util` of Tokio: `#[tokio::test(start_paused = true)]`.
///
/// Clients that share a named embedded store must all use this clock, or none. Blocking calls
/// wait in real time, because a paused clock stands still while a thread is blocked. The client ends with its runtime.
///
/// # Errors
///
/// Making the client returns [`LockError::InvalidOption`] outside of a Tokio runtime, for a server, because a server's
/// leases end by the server's clock, and for a named embedded store whose clients have another clock.
///
/// # Panics
///
/// Tasks of the client panic on a runtime without timers.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use rlock_core::{LockClient, LockError, testing};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), LockError> { // in a test: #[tokio::test(start_paused = true)]
/// let client = testing::use_tokio_clock(LockClient::builder()).in_memory()?;
/// let held = client.lock("order:42").acquire().await?;
/// let patient = client.lock("order:42").wait(Duration::from_secs(600));
/// // Returns at once, because the clock is paused.
/// assert!(matches!(patient.acquire().await, Err(LockError::Taken { .. })));
/// assert!(held.is_valid(), "it was renewed for ten minutes");
/// # held.release().await
/// # }
/// ```
pub fn use_tokio_clock(builder: LockClientBuilder) -> LockClientBuilder {
    builder.with_clock(ClockOption::Tokio)
}

/// Lets the client go by a clock that the test can [advance](Clock::advance). Works on any runtime and without the
/// feature `test-util` of Tokio.
///
/// With the embedded store, the store goes by the same clock. A server still ends leases by its own clock, so there the
/// clock shows how the client acts after its process was paused.
///
/// # Errors
///
/// Making the client returns [`LockError::InvalidOption`] for a named embedded store whose clients have another clock.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use rlock_core::{LockClient, LockError, LostCause, testing};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// let clock = testing::Clock::new();
/// let client = testing::use_clock(LockClient::builder(), &clock).in_memory()?;
/// let lock = client.lock("order:42").lease(Duration::from_secs(30));
/// let body = lock.run(async {
///     clock.advance(Duration::from_secs(30));
///     std::future::pending::<()>().await; // a long body
/// });
/// let error = body.await.expect_err("its lease has ended");
/// assert!(matches!(error, LockError::Lost { cause: LostCause::Expired, .. }));
/// # Ok(())
/// # }
/// ```
pub fn use_clock(builder: LockClientBuilder, clock: &Clock) -> LockClientBuilder {
    builder.with_clock(ClockOption::Ahead(clock.clone()))
}
