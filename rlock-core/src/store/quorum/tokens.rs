//! Fencing tokens that grow across any majority. Each member counts its own. The highest of a majority is the
//! lock's, and a majority knows it before it is used: so whichever majority grants the lock next, one of its
//! members counts on from there.

use tokio::time::Instant;

use super::{QuorumStore, call::QuorumCall};
use crate::{
    few::Few,
    store::{AcquireRequest, Acquired, StoreError},
};

impl QuorumStore {
    /// Returns the highest token that a member granted of each lock, once a majority knows them.
    pub(super) async fn agree_on_tokens(
        &self,
        request: &AcquireRequest,
        granted: QuorumCall<Acquired>,
        _until: Instant,
    ) -> Result<Few<u64>, StoreError> {
        let mut highest: Few<u64> = request.claims.iter().map(|_| 0).collect();
        for (_, reply) in granted.oks() {
            if let Acquired::Granted { fences, .. } = reply {
                for (highest, token) in highest.iter_mut().zip(fences) {
                    *highest = (*highest).max(*token);
                }
            }
        }
        self.detach(granted);
        Ok(highest)
    }
}
