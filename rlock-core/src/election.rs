//! What an election offers: one of several processes leads, in numbered terms, by the lock of its key.

mod announce;
mod campaign;
mod group;
mod observe;
mod shares;
mod term;

use std::time::{Duration, SystemTime};

use rlock_proto::{key::Key, wait::Spread};

pub use self::{
    group::Elections,
    observe::{LeaderChange, LeaderChanges, LeaderInfo},
    term::{LeaderGuard, Term},
};
use crate::{client::LockClient, error::LockError, lock::Lock, observe::label};

/// After so many failures in a row, an observer or a candidate asks less often.
const MOST_TIMES: u32 = 10;
const LESS_OFTEN: Duration = Duration::from_secs(5);

/// Returns the pause after this many failures in a row.
fn pause_after(failures: u32) -> Duration {
    if failures < MOST_TIMES {
        Spread(fastrand::u64(..)).after_failures(failures)
    } else {
        LESS_OFTEN
    }
}

impl LockClient {
    /// Returns a handle to an election. The leader holds the lock of this key exclusively, so commands and metrics show
    /// the election like any other lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rlock_core::{LockClient, LockError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let client = LockClient::in_memory();
    /// let election = client.election("scheduler");
    /// let rounds = election.run(async |term| {
    ///     // While this body runs, no other process leads.
    ///     println!("leading in term {}", term.token());
    ///     3 // usually an endless loop; when the leadership is lost, it is dropped at its next await
    /// });
    /// assert_eq!(rounds.await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, key: impl Into<String>) -> Election {
        // A client that retains its locks would keep one that it has resigned from.
        let lock = self.lock(key).wait_forever().retain(Duration::ZERO);
        let key = self.key(lock.key()).ok().filter(|key| !key.is_hidden());
        Election {
            lock: match key {
                Some(key) => lock.label(label(key.as_str())),
                None => lock,
            },
            client: self.clone(),
        }
    }
}

/// A handle to an election, from [`LockClient::election`]. It can be used any number of times.
///
/// Each leadership is a *term* with a number, its [fencing token](crate::Token), which is larger than
/// that of every earlier term. A process can check whether it leads, but another one may lead a moment later. So a
/// leader that writes to a database should do so with the [fence](crate::Hold::fence) of its term.
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until a process campaigns"]
pub struct Election {
    lock: Lock,
    client: LockClient,
}

impl Election {
    /// Sets the [lease](Lock::lease): how long a leader that has died or is cut off blocks its successor. A leader
    /// that dies right after it has taken over blocks it for a second, even if the lease is shorter.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lock = self.lock.lease(lease);
        self
    }

    /// Limits each term: a leader that still leads after this time loses its leadership, as with [`Lock::max_hold`].
    /// By default, there is no limit, so a body that hangs leads for as long as its process lives.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.lock = self.lock.max_hold(max_hold);
        self
    }

    fn checked_key(&self) -> Result<Key, LockError> {
        self.client.key(self.key())
    }

    /// Returns the key of the lock that the leader holds.
    #[must_use]
    pub fn key(&self) -> &str {
        self.lock.key()
    }

    /// Returns the current leader, or `None` if no process leads.
    ///
    /// A leader whose process has ended, is stuck or is cut off has no successor before its lease ends. Until then, it
    /// is returned without its [`holder`](LeaderInfo::holder), and [`lease_left`](LeaderInfo::lease_left) shows how
    /// long that takes.
    ///
    /// # Errors
    ///
    /// Same as [`LockClient::inspect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn leader(&self) -> Result<Option<LeaderInfo>, LockError> {
        let info = self.client.inspect_holder(self.key()).await?;
        Ok(info.and_then(|info| LeaderInfo::of(info, SystemTime::now())))
    }

    /// Follows the election: [`next`](LeaderChanges::next) returns who leads, or that no process does, and then each
    /// change.
    ///
    /// Leaders announce their terms and values to all clients of the store, and also the end of a term, so no client
    /// polls. An observer that learns of an end asks the store first: while the lock has already passed to the next
    /// candidate, it waits for that one's announcement, and otherwise returns [`LeaderChange::Nobody`] within
    /// milliseconds. A leader that dies announces nothing, so an observer asks the store once in each lease whether it
    /// was renewed, or every 30 seconds while nobody leads, and returns `Nobody` at most 100 milliseconds after the
    /// lease has ended. While the store does not reply, it returns no change, because the leader may go on until its
    /// lease ends.
    ///
    /// A slow reader may miss changes in between, but never the latest. A client that was cut off asks for the leader
    /// when it is connected again, and leaves out a leader that does not reply until it does. If a process ends
    /// right after it has resigned, without [`drain`](LockClient::drain) or [`shutdown`](LockClient::shutdown), some
    /// observers may still return it as the leader until they next ask the store.
    ///
    /// A term that ends at once may not be announced. If an announced term is smaller than the latest one, this client
    /// asks for the leader, and returns the reply. So after the store has lost its data, terms may have smaller numbers
    /// than before.
    ///
    /// The messages are not signed, so a user who may publish to the clients' channels can announce a term that no
    /// process leads. An observer sees a forged term, unless its number is 2^53 or more, and the term stays until the
    /// client is connected again or the leader announces a term or a value. [`Election::leader`] is not affected,
    /// because it asks the store, and no message changes a [fence](crate::Hold::fence).
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`] if no lock can have the key of the election.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rlock_core::{LockClient, LockError, election::LeaderChange};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let election = LockClient::in_memory().election("scheduler");
    /// let mut changes = election.changes()?;
    /// let first = election.campaign().await?;
    /// while let Some(change) = changes.next().await {
    ///     match change {
    ///         LeaderChange::Leader(leader) => {
    ///             assert_eq!(leader.term, Some(first.token()));
    ///             break;
    ///         }
    ///         LeaderChange::Nobody => println!("no process leads"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes(&self) -> Result<LeaderChanges, LockError> {
        let key = self.checked_key()?;
        Ok(LeaderChanges::follow(self, key))
    }

    /// Asks the leader to resign when it is ready, for example after its current work. Returns whether a leader has received
    /// the request.
    ///
    /// Same as [`LockClient::request_release`] with the key of the election. In the leader,
    /// [`release_requested`](crate::Hold::release_requested) of its [`Term`] resolves. To stop the leader's body at its
    /// next await instead, call [`LockClient::revoke`].
    ///
    /// # Errors
    ///
    /// Same as [`LockClient::request_release`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the leader may have received the request.
    pub async fn request_release(&self) -> Result<bool, LockError> {
        self.client.request_release(self.key()).await
    }
}
