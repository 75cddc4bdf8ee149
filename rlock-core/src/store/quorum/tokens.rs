//! Fencing tokens that grow across any majority. Each member counts its own. The highest of a majority is the
//! lock's, and a majority knows it before it is used: so whichever majority grants the lock next, one of its
//! members counts on from there.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    QuorumStore,
    call::{LONGEST_LATE, QuorumCall},
    verdict::Verdict,
};
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
        until: Instant,
    ) -> Result<Few<u64>, StoreError> {
        let mut highest: Few<u64> = request.claims.iter().map(|_| 0).collect();
        for (_, reply) in granted.oks() {
            if let Acquired::Granted { tokens, .. } = reply {
                for (highest, token) in highest.iter_mut().zip(tokens) {
                    *highest = (*highest).max(*token);
                }
            }
        }
        let mut raised = QuorumCall::new(&self.members);
        for member in 0..self.members.len() {
            match granted.reply(member) {
                Some(Ok(Acquired::Granted { tokens, .. })) if *tokens == highest => {
                    raised.set(member, Ok(true));
                }
                Some(Ok(Acquired::Granted { .. })) => raised.ask(member, |member, _| {
                    member.raise(request.clone(), highest.clone())
                }),
                Some(Ok(_)) => raised.set(member, Ok(false)),
                Some(Err(error)) => raised.set(member, Err(error.clone())),
                None => raised.set(member, Err(self.members[member].why_silent())),
            }
        }
        self.raise_late(request, &highest, granted);
        let until = until.max(Instant::now() + LONGEST_LATE);
        let agreed = match raised.decide_by(until, |knows| *knows).await {
            Verdict::Yes => Ok(highest),
            // The locks were granted, whatever became of their tokens.
            _ => Err(StoreError {
                maybe_executed: true,
                ..raised.error()
            }),
        };
        self.detach(raised);
        agreed
    }

    /// Raises the tokens of members that grant late: they may be the ones that are left to remember them.
    fn raise_late(
        &self,
        request: &AcquireRequest,
        highest: &Few<u64>,
        granted: QuorumCall<Acquired>,
    ) {
        for late in granted.decide() {
            let (member, request) = (Arc::clone(&self.members[late.member]), request.clone());
            let highest = highest.clone();
            self.detached[late.member].follow(async move {
                let (_, reply) = late.await;
                if matches!(reply, Ok(Acquired::Granted { tokens, .. }) if tokens != highest) {
                    let _ = member.raise(request, highest).await;
                }
            });
        }
    }
}
