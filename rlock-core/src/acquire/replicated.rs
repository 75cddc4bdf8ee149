//! Keeping only those locks that replicas have.

use super::{Attempt, Refused, fresh::claim_of};
use crate::{few::Few, guard::LockGuard, store::Claim};

impl Attempt<'_> {
    /// Answers the guards once as many replicas as asked for have their locks; else gives them back.
    /// Meanwhile the watchdog renews them, and whoever cancels the call drops them.
    pub(super) async fn replicated(
        &self,
        guards: Few<LockGuard>,
    ) -> Result<Few<LockGuard>, Refused> {
        let claims = guards.iter().map(|guard| claim_of(&guard.view().hold));
        let claims: Few<Claim> = claims.collect();
        let store = &self.core.store;
        let confirmed = store.replicate(&claims, self.request.lease).await;
        let Err(error) = confirmed else {
            return Ok(guards);
        };
        for guard in guards {
            // What cannot be given back at once is given back in the background.
            let _ = guard.release().await;
        }
        Err(self.failed(error))
    }
}
