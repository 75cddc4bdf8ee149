//! `request_release`, `revoke` and `force_release`: asks another client to release its lock, makes it stop its body, or takes
//! the lock away on the store.

use std::time::Duration;

use futures_util::future::try_join_all;
use rlock_proto::{
    key::Key,
    mode::LockMode,
    owner::OwnerId,
    store::{Applied, Change, ReleaseRequest, StoredLock, TOKENS},
};

use super::LockClient;
use crate::{
    engine::{
        messages::{Answer, Question, Report, Way},
        queries::ask,
    },
    error::LockError,
    store::{SendOptions, StoreError},
    token::Token,
};

impl LockClient {
    /// Asks the holder of a lock to release it when it is ready, for example after its current work. Returns `true` if it
    /// has received the request. If a [shared](crate::Lock::shared) lock or its [permits](crate::Lock::permits) have
    /// several holders, asks all of them, at most 100, and returns `true` only if all have received it.
    ///
    /// In each of their holds, [`release_requested`](crate::Hold::release_requested) resolves, and nothing else
    /// happens: a holder that does not await it keeps the lock. Its client logs the request with the
    /// [service](crate::LockClientBuilder::service), host and process of this one, at INFO. The request concerns the
    /// holds that live when it arrives, and neither calls that wait for the lock nor later holds. Afterwards, the
    /// holder's client serves only a few of its own waiting calls before it releases the lock, and does not
    /// [retain](crate::Lock::retain) it. A lock that is already retained is released at once.
    ///
    /// If the lock must become free, use [`revoke`](Self::revoke), which stops the holder's body, or
    /// [`force_release`](Self::force_release), which does not wait for it.
    ///
    /// Returns `false` if the lock is free, if a holder replies that it no longer has it, or if a holder does not
    /// reply within 200 milliseconds, because its process has ended, is stuck or cut off, or its client has
    /// [`inspectable(false)`](crate::LockClientBuilder::inspectable). A process that was paused may read the request
    /// when it resumes.
    ///
    /// # Errors
    ///
    /// Same as [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the holder may have received the request. The call can be repeated.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock("reindex").acquire().await?;
    /// assert!(client.request_release("reindex").await?);
    /// guard.release_requested().await; // resolves at once
    /// guard.release().await // nothing was lost
    /// # }
    /// ```
    pub async fn request_release(&self, key: &str) -> Result<bool, LockError> {
        let key = self.key(key)?;
        let Some(entry) = self.entry(&key).await? else {
            return Ok(false);
        };
        let replies = self.tell_holders(&key, &entry, Way::Ask).await?;
        let is_received = |reply: &Option<Answer>| *reply == Some(Answer::Done);
        Ok(!replies.is_empty() && replies.iter().all(is_received))
    }

    /// Revokes a lock: makes its holder stop and release it. Returns `true` if the holder does so, or has done so. If a
    /// [shared](crate::Lock::shared) lock or its [permits](crate::Lock::permits) have several holders, revokes the
    /// holds of all of them, at most 100, and returns `true` only if all do so.
    ///
    /// The holder loses its hold with [`LostCause::Revoked`](crate::LostCause::Revoked), so its body is cancelled at
    /// its next await, as after any loss. The lock is released only when the body has stopped or its guard is dropped.
    /// Until then, its client renews the lease, and no other client gets the lock. A synchronous body cannot be
    /// stopped, so it has the lock until it returns, which it can do early if it calls [`check`](crate::Hold::check).
    /// The holder's client logs a warning with the [service](crate::LockClientBuilder::service), host and process of
    /// this one. To leave the end to the holder, use [`request_release`](Self::request_release).
    ///
    /// Returns `false` if the lock is already free, if a holder replies that it no longer has it, or if a holder neither
    /// replies within 200 milliseconds nor has released the lock by then, because its process has ended, is stuck or
    /// cut off, or its client has [`inspectable(false)`](crate::LockClientBuilder::inspectable). A process that was
    /// paused may read the request when it resumes, and then release its current hold.
    ///
    /// # Errors
    ///
    /// Same as [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the holder may have received the request.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, LockError, LostCause};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let client = LockClient::in_memory();
    /// let held = client.lock("order:42").acquire().await?;
    /// assert!(client.revoke("order:42").await?);
    /// assert_eq!(held.lost().await, LostCause::Revoked);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revoke(&self, key: &str) -> Result<bool, LockError> {
        let (key, asked_at) = (self.key(key)?, self.core().clock.now());
        let Some(entry) = self.entry(&key).await? else {
            return Ok(false);
        };
        let replies = self.tell_holders(&key, &entry, Way::Revoke).await?;
        if replies.is_empty() || replies.iter().flatten().any(|it| *it != Answer::Done) {
            return Ok(false);
        }
        if !replies.contains(&None) {
            return Ok(true);
        }
        // A process that ends with its body has released the lock, and may be gone before it replies. Otherwise the lease
        // may have ended, and of several holders, each has a lease of its own.
        let latest = self.entry(&key).await?;
        let has_left = latest.is_none_or(|latest| !latest.has(&entry.owner));
        let lasts = |ttl| self.core().clock.now() < asked_at + ttl;
        Ok(has_left && entry.holders == 1 && entry.ttl.is_none_or(lasts))
    }

    /// Releases the lock if the current hold has this token. Returns `true` if it was released.
    ///
    /// Use it in a tool that decides by what [`inspect`](Self::inspect) has returned, because it does not touch a
    /// later hold. The holder compares the token, and loses the lock as with [`force_release`](Self::force_release).
    /// If it does not reply within 200 milliseconds, the store compares: a token matches if it is the one that
    /// `inspect` returns, or one of the 127 after it, which holds may have that the lock's client passed on locally.
    /// Each server of a quorum sets a fence of its own. Without the holder's reply, `inspect` returns the largest one,
    /// and the holder's token may have a smaller one. Both match, unless a server does not reply in time: then the call
    /// may return `false` for the right token.
    ///
    /// If there are several holders, takes the lock from those with this token. The store does not know which holder of
    /// a shared lock or a permit has which token, so one that does not reply keeps the lock.
    ///
    /// # Errors
    ///
    /// Same as [`force_release`](Self::force_release).
    ///
    /// # Cancel safety
    ///
    /// Same as [`force_release`](Self::force_release). The call can be repeated.
    pub async fn release_if(&self, key: &str, token: Token) -> Result<bool, LockError> {
        self.take_from(self.key(key)?, Some(token.as_u64())).await
    }

    /// Takes a lock from its holder, even from one that does not reply, and hands it off to the next waiter. Returns
    /// whether the lock was taken.
    ///
    /// If the holder's client replies within 200 milliseconds, it loses the lock first, with
    /// [`LostCause::Revoked`](crate::LostCause::Revoked), and logs a warning that names this client. Its body may run
    /// on until its next await, and a stuck one even longer, **while the next holder works**. The next hold has a
    /// larger fencing token, so storage that checks the token refuses the former holder. If an overlap would do harm
    /// and the holder still replies, prefer [`revoke`](Self::revoke), which waits for the body.
    ///
    /// Takes a [shared](crate::Lock::shared) lock and [permits](crate::Lock::permits) from all holders, at most 100.
    ///
    /// Also ends the time for which [`min_hold`](crate::Lock::min_hold) keeps a lock taken.
    ///
    /// # Errors
    ///
    /// Same as [`inspect`](Self::inspect). [`LockError::Refused`] for a lock that other software wrote: delete its key
    /// on the server. [`LockError::Refused`] also if the store refuses the release, for example because its user may
    /// not write. Its holder, if it replies, has lost the lock nevertheless, and releases it itself.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the holder may have lost the lock, and the lock may remain until its
    /// lease ends.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let held = client.lock("order:42").acquire().await?;
    /// assert!(client.force_release("order:42").await?);
    /// let next = client.lock("order:42").acquire().await?;
    /// assert!(next.token() > held.token());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn force_release(&self, key: &str) -> Result<bool, LockError> {
        self.take_from(self.key(key)?, None).await
    }

    async fn take_from(&self, key: Key, token: Option<u64>) -> Result<bool, LockError> {
        let Some(entry) = self.entry(&key).await? else {
            return Ok(false);
        };
        if OwnerId::parse(&entry.owner).is_none() {
            let action = format!("release lock `{key}` of another client");
            let error = StoreError::foreign_owner(&entry.owner);
            return Err(error.into_lock_error(action, Duration::ZERO));
        }
        let owners = owners(&entry);
        let take = |owner: &OwnerId| self.take_from_owner(&key, *owner, token, &entry);
        let outcomes = try_join_all(owners.iter().map(take)).await?;
        Ok(outcomes.contains(&true))
    }

    async fn take_from_owner(
        &self,
        key: &Key,
        owner: OwnerId,
        token: Option<u64>,
        entry: &StoredLock,
    ) -> Result<bool, LockError> {
        let reply = self.tell_holder(key, owner, Way::Take { token }).await?;
        if token.is_some_and(|token| !is_meant(reply, entry, owner, token)) {
            return Ok(false);
        }
        let release = Change::Release(ReleaseRequest {
            key: key.clone(),
            owner,
            fence: entry.fence.unwrap_or_default(),
            min_hold: Duration::ZERO,
            refuses_late: false,
        });
        let send = SendOptions::new(self.core().options.response_timeout);
        let released = self.core().store.apply(&release, send);
        let released = async { released.await.map_err(|error| error.hide([key])) };
        let action = || format!("release lock `{key}` of another client");
        let released = self.ask(released, action).await?;
        if token.is_some() && reply != Some(Answer::Done) && released == Applied::Done {
            // The grant may reach the holder after the release, and must not begin a hold.
            let told = self.tell_holder(key, owner, Way::Take { token: None });
            let _ = told.await;
        }
        Ok(reply == Some(Answer::Done) || released == Applied::Done)
    }

    /// Tells the holders of a lock to release it. Returns the reply of each, or `None` for one that is silent.
    async fn tell_holders(
        &self,
        key: &Key,
        entry: &StoredLock,
        way: Way,
    ) -> Result<Vec<Option<Answer>>, LockError> {
        let tell = |owner| self.tell_holder(key, owner, way);
        try_join_all(holders(entry).map(tell)).await
    }

    /// Tells the holder of a lock to release it. Returns its reply, or `None` if it is silent.
    async fn tell_holder(
        &self,
        key: &Key,
        owner: OwnerId,
        way: Way,
    ) -> Result<Option<Answer>, LockError> {
        let question = Question::Release {
            way,
            key: key.clone(),
            owner,
            by: self.core().options.identity.to_string(),
        };
        let takes = matches!(way, Way::Take { .. });
        self.answer_of(key, owner, &question, takes).await
    }

    /// Asks the holder of a lock to change its hold. Returns its answer, or `None` if it is silent, or if this client may not ask
    /// and `else_silent`.
    pub(super) async fn answer_of(
        &self,
        key: &Key,
        owner: OwnerId,
        question: &Question,
        else_silent: bool,
    ) -> Result<Option<Answer>, LockError> {
        let action = || format!("tell the holder of lock `{key}`");
        let reply = self.ask(ask(self.core(), owner.client(), question), action);
        Ok(match reply.await {
            Ok(Some(Report::Told(answer))) => Some(answer),
            Ok(_) => None,
            // Without the permission to publish, the store alone decides.
            Err(LockError::Refused { .. }) if else_silent => None,
            Err(error) => return Err(error),
        })
    }
}

/// Returns whether this is the token of the owner, as its client has answered, or else as far as the store knows.
pub(super) fn is_meant(
    answer: Option<Answer>,
    entry: &StoredLock,
    owner: OwnerId,
    token: u64,
) -> bool {
    match answer {
        Some(Answer::Done) => true,
        Some(Answer::OtherHold) => false,
        // The store knows the last fence of a shared lock, which may be that of a holder that has left.
        Some(Answer::NotHeld) | None => {
            owner.mode() == LockMode::Exclusive
                && entry.holders == 1
                && entry.has_fence(token / TOKENS)
        }
    }
}

/// Returns the holders of a lock, as far as they are known. A lock that only `min_hold` keeps has none.
pub(super) fn holders(entry: &StoredLock) -> impl Iterator<Item = OwnerId> {
    owners(entry).into_iter().filter(|owner| !owner.is_kept())
}

/// Returns the owners of a lock, as far as they are known.
fn owners(entry: &StoredLock) -> Vec<OwnerId> {
    let first = OwnerId::parse(&entry.owner);
    first
        .into_iter()
        .chain(entry.others.iter().copied())
        .collect()
}
