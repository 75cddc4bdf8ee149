//! Shuts a client down: `drain` lets the calls inside locks end first, `shutdown` releases everything at once.

use std::time::Duration;

use rlock_proto::machine::{Hold, Input, Machine, Ownership, Slot};
use tokio::time::timeout;

use super::LockClient;
use crate::{blocking::block_on, error::LockError, store::StoreError};

impl LockClient {
    /// Shuts the client down: stops the running bodies and releases every lock.
    ///
    /// From now on, acquires fail with [`LockError::Closed`]. Running bodies lose their locks with
    /// [`LostCause::Closed`](crate::LostCause::Closed) and stop at their next await. A guard that still exists loses
    /// its lock at once, even one with [`min_hold`](crate::Lock::min_hold).
    ///
    /// # Errors
    ///
    /// The shutdown waits for at most twice the response time-out. Locks that are not released by then end with their
    /// leases.
    ///
    /// - [`LockError::StillHeld`] if a body did not stop, or a [guard](crate::CurrentHold::guard) of a body was not
    ///   dropped.
    /// - [`LockError::Unavailable`] if the store did not reply to a release.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the client is closed nevertheless. Call `shutdown` again to wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("order:42");
    /// client.shutdown().await?;
    /// assert!(matches!(lock.acquire().await, Err(LockError::Closed { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shutdown(&self) -> Result<(), LockError> {
        let core = self.core();
        core.close();
        let started = core.clock.now();
        // Without its background, the client cannot release anything.
        let releasing = core.in_runtime(async {
            tokio::select! {
                biased;
                () = core.background_ended() => {}
                () = self.release_all() => {}
            }
        });
        releasing.await;
        let waited = core.clock.now().since(started);
        // Read before the background ends, because its end also ends these holds.
        let (keys, is_released) = core
            .shell
            .read(|machine, _| (keys_in_use(machine), machine.is_released()));
        self.handle.stop();
        core.background_ended().await;
        if !keys.is_empty() {
            return Err(LockError::StillHeld { keys, waited });
        }
        if !is_released {
            let action = "release every lock at shutdown".to_owned();
            return Err(StoreError::not_released().into_lock_error(action, waited));
        }
        Ok(())
    }

    /// Shuts the client down from synchronous code, like [`shutdown`](Self::shutdown). Blocks the calling thread.
    ///
    /// # Errors
    ///
    /// Same as [`shutdown`](Self::shutdown), and [`LockError::BlockingInAsync`] on a thread that runs Tokio tasks. In that
    /// case, the client is not closed.
    pub fn shutdown_blocking(&self) -> Result<(), LockError> {
        block_on(|| "shut the client down".to_owned(), self.shutdown())?
    }

    /// Shuts a service down gracefully: serves the calls that already wait, waits until the client's locks are
    /// released, and then [shuts the client down](Self::shutdown).
    ///
    /// From now on, new calls fail with [`LockError::Draining`]. A call that began earlier, which means that its
    /// future was polled, still acquires its lock. Existing holds continue: bodies run and leases are renewed. Calls
    /// inside a body, or inside [`LockGuard::scope`](crate::LockGuard::scope), may acquire further locks. If the
    /// future of a waiting call is not polled, for example after a `select!`, the client gives the call up some
    /// seconds later, with [`LockError::Draining`].
    ///
    /// Each hold, also that of a leader, is [asked to end](crate::Hold::release_requested). Candidates of
    /// [elections](Self::election) give up, with the same error.
    ///
    /// After `within`, the shutdown stops the remaining bodies, and calls that still wait fail with
    /// [`LockError::Closed`]. If the client is drained or shut down a second time, the earlier of the two ends
    /// applies.
    ///
    /// In a server, stop accepting requests first, and call `drain` when the running ones have ended, because
    /// otherwise some of them fail with `Draining`.
    ///
    /// # Errors
    ///
    /// Same as [`shutdown`](Self::shutdown).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the client stays in its current state: it refuses new calls, serves
    /// those that wait, and existing holds continue. Call `drain` or `shutdown` again to shut it down.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::{DrainOutcome, LockClient};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let work = tokio::time::sleep(Duration::from_millis(50));
    /// let job = tokio::spawn(client.lock("order:42").run(work));
    /// tokio::task::yield_now().await;
    /// // The server has ended. Background jobs have 20 seconds.
    /// let drained = client.drain(Duration::from_secs(20)).await?;
    /// assert_eq!(drained, DrainOutcome::Completed);
    /// job.await.expect("no panic")?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn drain(&self, within: Duration) -> Result<DrainOutcome, LockError> {
        let core = self.core();
        core.drain();
        let until = core.clock.now() + within;
        let drained = core.in_runtime(async {
            tokio::select! {
                biased;
                () = core.shell.until(Machine::is_drained) => {}
                () = core.background_ended() => {}
                () = core.clock.sleep_until(until) => {}
            }
        });
        drained.await;
        self.shutdown().await?;
        Ok(match core.held_at_close() {
            0 => DrainOutcome::Completed,
            locks => DrainOutcome::Interrupted { locks },
        })
    }

    /// Drains the client from synchronous code, like [`drain`](Self::drain). Blocks the calling thread.
    ///
    /// # Errors
    ///
    /// Same as [`drain`](Self::drain), and [`LockError::BlockingInAsync`] on a thread that runs Tokio tasks. In that case,
    /// the client does not drain.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::{DrainOutcome, LockClient};
    ///
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// client.lock("ledger").acquire_blocking()?.release_blocking()?;
    /// assert_eq!(client.drain_blocking(Duration::from_secs(20))?, DrainOutcome::Completed);
    /// # Ok(())
    /// # }
    /// ```
    pub fn drain_blocking(&self, within: Duration) -> Result<DrainOutcome, LockError> {
        block_on(|| "drain the client".to_owned(), self.drain(within))?
    }

    /// Waits until the bodies have stopped, and until the store has confirmed each release and observers know of it, for a
    /// response time-out each.
    async fn release_all(&self) {
        let core = self.core();
        let limit = core.options.response_timeout;
        let _ = timeout(limit, core.shell.until(Machine::is_quiet)).await;
        // A call that was in progress may have been granted a lock since.
        core.shell.on(Input::Close);
        let released = async {
            core.shell.until(Machine::is_released).await;
            core.shell.announcements.until_sent().await;
        };
        let _ = timeout(limit, released).await;
    }
}

/// Returns the keys of the locks that bodies still use, as errors show them.
fn keys_in_use(machine: &Machine) -> Vec<String> {
    let is_in_use = |slot: &&Slot| {
        let mut holds = slot.ownerships().iter().filter_map(Ownership::hold);
        holds.any(Hold::has_body)
    };
    let in_use = machine.slots().filter(is_in_use);
    in_use.map(|slot| slot.key().shown().to_owned()).collect()
}

/// The result of [`LockClient::drain`]. It says nothing about calls that still waited for a lock, which fail with
/// [`LockError::Closed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DrainOutcome {
    /// No lock was held any more when the client was shut down, so no body was stopped.
    Completed,
    /// The time ran out while locks were held. The shutdown took them from bodies, which stop with
    /// [`LockError::Lost`], and from guards, which become invalid.
    Interrupted {
        /// The number of locks that bodies and guards still held. Each key and each permit counts; a lock that
        /// several calls of the client share counts once.
        locks: usize,
    },
}
