//! Finds out who holds the lock that a call waits for, for its time-out.

use std::{future::pending, process, sync::Arc, time::Duration};

use super::Attempt;
use crate::{
    engine::{
        call_chain,
        holders::KnownHolder,
        ownership::Ownership,
        queries::{ask_holder, describe},
    },
    error::LockError,
    escape_control::{escape_control, shown},
    info::Holder,
    key::Key,
    lease::Time,
    options::{Identity, Wait},
    owner::OwnerId,
    store::SendOptions,
};

/// The last part of a wait, in which the holder is asked.
const LAST_PART: Duration = Duration::from_millis(250);
/// How long the reply of a holder serves the calls of this client.
const RECENT: Duration = Duration::from_secs(1);
/// How many locks of a call chain an error names.
const MOST_NAMED: usize = 3;

impl Attempt<'_> {
    /// Waits for a report about a lock of another client. In the last part of the wait, asks that client who it is.
    pub(super) async fn until_reported(&self, ownership: &Ownership) {
        // Boxed, because most calls do not wait.
        if ownership.requests(|requests| requests.is_waiting()) {
            Box::pin(self.report(ownership)).await;
        }
    }

    async fn report(&self, ownership: &Ownership) {
        let last_part = self.last_part();
        ownership.until_reported(last_part).await;
        if self.now() < last_part || !ownership.requests(|requests| requests.is_waiting()) {
            return;
        }
        // Boxed, because few calls come here.
        let asking = Box::pin(async {
            self.ask(&ownership.key).await;
            pending::<()>().await;
        });
        tokio::select! {
            biased;
            () = ownership.until_reported(self.deadline) => {}
            () = asking => {}
        }
    }

    /// Returns when the last part of the wait begins.
    fn last_part(&self) -> Time {
        match self.request.options.wait {
            Wait::Never | Wait::Forever => self.deadline,
            Wait::For(wait) => self.call.started + wait.saturating_sub(LAST_PART.min(wait / 2)),
        }
    }

    async fn ask(&self, key: &Key) {
        // Another call of this client has just asked.
        if self.reply_within(LAST_PART, key).is_some() {
            return;
        }
        let send = SendOptions::new(self.core.options.response_timeout);
        let Ok(Some(entry)) = self.core.store.inspect(key, send).await else {
            return;
        };
        let owner = OwnerId::parse(&entry.owner).filter(|owner| !owner.is_of(self.core.id));
        let Some(owner) = owner else {
            return;
        };
        let Some(mut info) = ask_holder(self.core, key, owner).await else {
            return;
        };
        info.ttl = Some(entry.ttl.unwrap_or_default());
        let now = self.now();
        if let Some(known) = KnownHolder::new(info, now) {
            self.core.holder_replies.add(key, known, now);
        }
    }

    /// Returns the holder of another client, if it has replied to a call of this client within this time.
    fn reply_within(&self, time: Duration, key: &Key) -> Option<KnownHolder> {
        self.core.holder_replies.within(time, key, self.now())
    }

    /// Returns the error of a call whose lock stayed taken. It describes the holder, and the locks that this call holds
    /// itself.
    pub(super) fn taken(&self, key: &Key, remaining: Option<Duration>) -> LockError {
        let waited = self.waited();
        let (remaining, holder, details) = match self.request.options.wait {
            // Without a wait, a taken lock is not an error.
            Wait::Never => (remaining, None, String::new()),
            _ => self.describe_contention(key, waited, remaining),
        };
        LockError::Timeout {
            key: key.shown(self.request.options.site).to_owned(),
            waited,
            remaining,
            holder,
            details: details.into(),
        }
    }

    /// Returns the rest of the holder's lease, the holder, and a text about both the holder and this call.
    fn describe_contention(
        &self,
        key: &Key,
        waited: Duration,
        remaining: Option<Duration>,
    ) -> (Option<Duration>, Option<Box<Holder>>, String) {
        let chain = call_chain::holds();
        let unpolled = self.core.queues.unpolled(key);
        let known = match unpolled {
            Some(_) => None,
            None => describe(self.core, key)
                .and_then(|info| KnownHolder::new(info, self.now()))
                // A call that does not wait sends only one request.
                .or_else(|| self.reply_within(RECENT, key).filter(|_| !self.asks_once())),
        };
        let mut text = String::new();
        if unpolled.is_some() {
            text += "; an earlier call of this client comes first and is not being polled: poll that call, or drop it";
        }
        if let Some(known) = &known {
            text += &self.holder_text(key, waited, known, &chain);
        }
        text += &chain_text(&chain, !self.asks_once());
        let known_remaining = known.as_ref().map(|known| known.remaining(self.now()));
        let remaining = unpolled.or(remaining).or(known_remaining);
        (remaining, known.map(|known| known.holder), text)
    }

    /// Describes the holder. If this call may run inside that hold, adds how to enter it.
    fn holder_text(
        &self,
        key: &Key,
        waited: Duration,
        KnownHolder { owner, holder, .. }: &KnownHolder,
        chain: &[Arc<Ownership>],
    ) -> String {
        let is_this_process = holder.pid == process::id() && holder.host == shown(Identity::host());
        if owner.is_of(self.core.id) {
            let own = self.core.queues.owned(key);
            let is_guard = own.is_some_and(|own| !own.has_body());
            // A hold that began during the wait cannot be one that this call runs inside.
            let may_be_inside = holder.held_for >= waited && (chain.is_empty() || is_guard);
            let hint = if may_be_inside {
                ": if this call runs inside that hold, enter it in `guard.scope(…)`, or in a spawned task by \
                 `in_current_scope()`"
            } else {
                ""
            };
            let hold = holder.hold();
            format!("; it is held by another call of this client{hold}{hint}")
        } else if is_this_process {
            let hint = if chain.iter().any(|outer| outer.owner == *owner) {
                ": this call runs inside that hold, and enters it only with the same client or a clone of it"
            } else {
                ""
            };
            format!("; it is held by another client of this process, {holder}{hint}")
        } else {
            format!("; it is held by {holder}")
        }
    }
}

/// Names the locks that a call holds. If it waited, the holder may wait for one of them.
fn chain_text(chain: &[Arc<Ownership>], has_waited: bool) -> String {
    if chain.is_empty() {
        return String::new();
    }
    let name = |own: &Arc<Ownership>| format!("`{}`", escape_control(own.shown()));
    let named: Vec<_> = chain.iter().take(MOST_NAMED).map(name).collect();
    let more = match chain.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let hint = if has_waited {
        ": calls that nest locks in different orders block each other, so acquire the locks together with \
         `lock_all`, or in one order everywhere"
    } else {
        ""
    };
    format!("; this call holds {}{more}{hint}", named.join(", "))
}
