//! What a hold tells the code inside while it works: another client requests its release, its lease runs out, or it is lost.

use std::time::Duration;

use rlock_proto::lost::LostCause;

use super::Hold;
use crate::engine::entry::{self, EntryHandle};

impl Hold {
    /// Resolves when another client [requests the release](crate::LockClient::request_release) of the lock, or when its
    /// own client [drains](crate::LockClient::drain). Nothing is lost: finish the current work, and then return from the body, or
    /// release the guard. Resolves in each hold, each nested call and each clone of the handle, also if the request
    /// came before the call. With several keys, one of them suffices.
    ///
    /// Does not resolve because the hold ends, so a task that may outlive it also awaits [`lost`](Self::lost).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect, because after a request each later call resolves at once. So a
    /// thread can poll a new future between two steps of its work.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_util::FutureExt;
    /// use rlock_core::{LockClient, current};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let reindexed = client.lock("reindex").run(async {
    ///     let hold = current().expect("inside a lock");
    ///     for page in 0.. {
    ///         if hold.release_requested().now_or_never().is_some() {
    ///             return page; // the next run goes on from here
    ///         }
    ///         // index the page
    /// #       if page == 2 {
    /// #           client.request_release("reindex").await.expect("a reply");
    /// #       }
    ///     }
    ///     unreachable!()
    /// });
    /// assert_eq!(reindexed.await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release_requested(&self) {
        match &self.entries[..] {
            [entry] => entry.release_requested().await,
            entries => _ = entry::first(entries.iter(), EntryHandle::release_requested).await,
        }
    }

    /// Resolves when the hold will soon be lost: when half of the lease is left without a renewal, or half of a lease
    /// before the end of [`max_hold`](crate::Lock::max_hold). Returns [what is left](Self::valid_for), so that the code
    /// inside can save its work or stop before the loss stops it.
    ///
    /// The watchdog renews the lease after a third of it, so at half of it the store has not replied for some time, and
    /// the hold is lost unless a later renewal succeeds. Without the [watchdog](crate::Lock::watchdog), this resolves at
    /// half of each lease. With several keys, the lock that ends first decides. Resolves to zero when the hold
    /// [is lost](Self::lost) or ends earlier.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect. If the lease has been renewed since, the next call waits again. Otherwise it
    /// resolves at once, so a loop that goes on has to leave it out of its next `select!`: `left = hold.expiring(), if !saved`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let lock = client.lock("import").lease(Duration::from_millis(100)).watchdog(false);
    /// let guard = lock.acquire().await?;
    /// tokio::select! {
    ///     left = guard.expiring() => println!("{left:?} are left to save the work"),
    ///     () = std::future::pending() => println!("the work is done"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn expiring(&self) -> Duration {
        tokio::select! {
            biased;
            _ = self.lost() => {}
            _ = entry::first(self.entries.iter(), EntryHandle::expiring) => {}
        }
        self.valid_for()
    }

    /// Resolves when the hold ends: to the cause if it was lost, or to [`LostCause::Released`] if its call has ended or
    /// released it. With several keys, the lock that ends first decides, and [`lost_key`](Self::lost_key) also returns
    /// its key.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect. If the hold ends before the next call, that call resolves at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::{LockClient, LostCause, current};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("order:42").max_hold(Duration::from_millis(20));
    /// let guard = lock.acquire().await?;
    /// tokio::select! {
    ///     cause = guard.lost() => assert_eq!(cause, LostCause::MaxHold),
    ///     () = std::future::pending() => println!("the work is done"),
    /// }
    /// # drop(guard);
    ///
    /// let hold = lock.run(async { current().expect("inside") }).await?;
    /// assert_eq!(hold.lost().await, LostCause::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> LostCause {
        match &self.entries[..] {
            [entry] => entry.lost().await,
            _ => self.lost_key().await.1,
        }
    }

    /// Resolves to the key and the cause when one of the locks is lost, like [`lost`](Self::lost).
    ///
    /// # Cancel safety
    ///
    /// Same as [`lost`](Self::lost).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock_all(["account:1", "account:2"]).acquire().await?;
    /// rlock_core::testing::simulate_loss(&client, "account:2")?; // as if the key had been deleted on a server
    /// let (key, cause) = guard.lost_key().await;
    /// println!("{key} was lost: {cause}");
    /// # assert_eq!(key, "account:2");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost_key(&self) -> (&str, LostCause) {
        let (entry, cause) = entry::first_lost(self.entries.iter()).await;
        (entry.key(), cause)
    }
}
