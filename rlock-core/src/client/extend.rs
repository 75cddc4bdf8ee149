//! `extend_if`: extends a lock by its token, from any client of the store.

use std::time::Duration;

use futures_util::future::try_join_all;
use rlock_proto::{
    key::Key,
    owner::OwnerId,
    store::{Claim, Renewal, RenewalOutcome, StoredLock},
};

use super::{
    LockClient,
    revoke::{holders, is_meant},
};
use crate::{
    engine::messages::Question,
    error::LockError,
    limits,
    store::{SendOptions, StoreError},
    token::Token,
};

impl LockClient {
    /// Extends the lock if its current hold has this token: the lease counts from now on, unless the present one ends
    /// later. Returns `true` if the store has confirmed that.
    ///
    /// Use it for a lock whose guard was [detached](crate::LockGuard::detach), in the requests or processes that know its
    /// token. A holder that still has its guard also learns of the longer lease, and relies on it once the store has
    /// confirmed it to the holder. The holder can [extend](crate::Hold::extend) its own hold without a token.
    ///
    /// Returns `false` if the lock is free or another hold has it, so a lock whose lease has ended is not revived. The holder, or
    /// else the store, compares the token, as for [`release_if`](Self::release_if). This also returns `false`
    /// for a [shared](crate::Lock::shared) lock or [permits](crate::Lock::permits) whose holder does not reply.
    ///
    /// # Errors
    ///
    /// Same as [`inspect`](Self::inspect), and [`LockError::InvalidOption`] for a lease that is not between 10 milliseconds and
    /// 24 hours.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock may have been extended. The call can be repeated.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::LockClient;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let token = client.lock("upload:7").acquire().await?.detach()?;
    /// // With each part of the upload:
    /// assert!(client.extend_if("upload:7", token, Duration::from_secs(15 * 60)).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn extend_if(
        &self,
        key: &str,
        token: Token,
        lease: Duration,
    ) -> Result<bool, LockError> {
        limits::lease("lease", lease)?;
        let key = self.key(key)?;
        let Some(entry) = self.entry(&key).await? else {
            return Ok(false);
        };
        let extend = |owner| self.extend_of(&key, owner, token.as_u64(), lease, &entry);
        let extended = try_join_all(holders(&entry).map(extend)).await?;
        Ok(extended.contains(&true))
    }

    async fn extend_of(
        &self,
        key: &Key,
        owner: OwnerId,
        token: u64,
        lease: Duration,
        entry: &StoredLock,
    ) -> Result<bool, LockError> {
        let question = Question::Extend {
            key: key.clone(),
            owner,
            token,
            lease,
        };
        let answer = self.answer_of(key, owner, &question, true).await?;
        if !is_meant(answer, entry, owner, token) {
            return Ok(false);
        }
        let claim = Claim {
            key: key.clone(),
            owner,
        };
        let renewal = [Renewal {
            last_fence: entry.fence.unwrap_or_default(),
            keeps_fence: entry.fence.is_some(),
            count: entry.count,
            ..Renewal::of(claim)
        }];
        let send = SendOptions::new(self.core().options.response_timeout);
        let renewed = async {
            let renewed = self.core().store.renew(&renewal, lease, send).await;
            let renewed = renewed.map_err(|error| error.hide([key]))?;
            match renewed.kept.first() {
                Some(RenewalOutcome::Held { .. }) => Ok(true),
                Some(RenewalOutcome::Lost) => Ok(false),
                Some(RenewalOutcome::Unknown) | None => Err(StoreError::no_majority()),
            }
        };
        self.ask(renewed, || format!("extend lock `{key}`")).await
    }
}
