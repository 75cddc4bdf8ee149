//! What other clients learn about an ownership.

use super::{Ownership, Phase};
use crate::{
    escape_control::shown,
    info::{Holder, LockInfo},
    options::Identity,
};

impl Ownership {
    /// Notes the trace in which the present hold was acquired.
    pub(crate) fn set_trace_id(&self, trace_id: Option<String>) {
        self.state().rare.get_or_insert_default().trace_id = trace_id;
    }

    /// Describes the lock and its present hold. Returns `None` if it is not owned.
    pub(crate) fn describe(&self, identity: &Identity, waiters: usize) -> Option<LockInfo> {
        let (state, now) = (self.state(), self.now());
        if !state.is_owned() {
            return None;
        }
        let text = |text: &str| (!text.is_empty()).then(|| shown(text));
        Some(LockInfo {
            key: self.key.as_str().to_owned(),
            owner: self.owner.to_string(),
            count: state.count().max(1),
            ttl: Some(state.valid_until.since(now)),
            token: Some(state.token),
            retained: state.phase == Phase::Retained,
            holder: Some(Holder {
                service: identity.service.as_deref().map(shown),
                version: identity.version.as_deref().map(shown),
                host: shown(Identity::host()),
                pid: std::process::id(),
                held_for: now.since(state.since),
                lock: text(state.site.name_or("")),
                function: state.site.function().as_deref().and_then(text),
                trace_id: state
                    .rare
                    .as_ref()
                    .and_then(|rare| rare.trace_id.as_deref().map(shown)),
                waiters,
                renewals: state.renewals.count,
                revoked_for: state
                    .rare
                    .as_ref()
                    .and_then(|rare| Some(now.since(rare.revoked_at?))),
            }),
            address: None,
            queue: Vec::new(),
            wanted: false,
        })
    }
}
