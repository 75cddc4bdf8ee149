//! Finds out who holds the lock that a call waits for, for the error of a lock that stays taken.

use std::{future::poll_fn, mem, pin::pin, process, task::Poll, time::Duration};

use futures_util::future::{Either, select};
use rlock_proto::{
    escape_control::{escape_control, shown},
    few::Few,
    key::Key,
    lease::Time,
    machine::{CallId, Step, WantedLock},
    mode::LockMode,
    options::Wait,
    owner::OwnerId,
};

use super::Attempt;
use crate::{
    engine::{
        call::CallGuard,
        call_chain,
        entry::EntryHandle,
        queries::{Unanswered, ask_holder, describe, info_of},
    },
    error::LockError,
    info::{Holder, LockInfo},
    options::Identity,
    store::SendOptions,
    wording::names,
};

/// The last part of a wait, in which the holder is asked who it is.
const LAST_PART: Duration = Duration::from_millis(250);
/// How long the reply of a holder serves the calls of this client.
const RECENT: Duration = Duration::from_secs(1);

const UNPOLLED: &str = "; an earlier call of this client comes first and is not being polled: poll that call, or drop it";
const SILENT: &str = "; its holder does not reply: it may have ended, be stuck or be cut off; if it has ended, the lock ends with its lease";
const ENTER: &str = ": if this call runs inside that hold, enter it in `guard.scope(…)`, or in a spawned task by \
                     `in_current_scope()`";
const NO_ENTRY: &str = ": if this call runs inside that hold, it deadlocks with itself: acquire the exclusive lock from the \
                        start, or release that hold first";
const SAME_CLIENT: &str =
    ": this call runs inside that hold, and enters it only with the same client or a clone of it";
const IN_ORDER: &str = ": calls that nest locks in different orders block each other, so acquire the locks together \
                        with `lock_all`, or in one order everywhere";

impl Attempt<'_> {
    /// Returns when the last part of the wait begins, if the wait has an end.
    pub(super) fn last_part(&self) -> Option<Time> {
        match self.request.wait {
            Wait::Never | Wait::Forever => None,
            Wait::For(wait) => {
                Some(self.call.started + wait.saturating_sub(LAST_PART.min(wait / 2)))
            }
        }
    }

    /// Waits for the next step of the call. At `asks_at`, asks the holder who it is, once.
    pub(super) async fn wait(&self, call: &mut CallGuard<'_>, asks_at: &mut Option<Time>) -> Step {
        let Some(at) = *asks_at else {
            return call.woken().await;
        };
        let (id, has_only_begun) = (call.id(), call.has_only_begun());
        let asking = async {
            self.until_contended(id, has_only_begun).await;
            // Boxed, because few calls come here.
            Box::pin(self.core().in_runtime(async {
                self.core().clock.sleep_until(at).await;
                // It may wait for another lock by now.
                let key = self.until_contended(id, false).await;
                *asks_at = None;
                self.ask(&key).await;
            }))
            .await;
        };
        match select(pin!(call.woken()), pin!(asking)).await {
            Either::Left((step, _)) => step,
            Either::Right(((), woken)) => woken.await,
        }
    }

    /// Resolves when the call waits for another client, and not for calls of this one. Looks whenever the call is polled,
    /// because the machine wakes a call that gets its turn; from the next time on if it `has_only_begun`.
    async fn until_contended(&self, id: CallId, mut has_only_begun: bool) -> Key {
        let shell = &self.core().shell;
        poll_fn(|_| {
            if mem::take(&mut has_only_begun) {
                return Poll::Pending;
            }
            let key = shell.read(|machine, _| machine.contended(id).cloned());
            key.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Asks the client that holds the lock who it is, for the error of a call whose wait ends soon.
    async fn ask(&self, key: &Key) {
        // Another call of this client has just asked.
        if self.reply_within(LAST_PART, key).is_some() {
            return;
        }
        let send = SendOptions::new(self.core().options.response_timeout);
        let Ok(Some(entry)) = self.core().store.inspect(key, send).await else {
            return;
        };
        let Some(owner) = OwnerId::parse(&entry.owner) else {
            return;
        };
        if !owner.is_of(self.core().id) {
            let ttl = entry.ttl;
            let info = match ask_holder(self.core(), key, owner).await {
                Ok(info) => LockInfo { ttl, ..info },
                // The reply is remembered, although it names no holder.
                Err(Unanswered::Silent) => info_of(key, entry),
                Err(Unanswered::Other) => return,
            };
            self.core().holder_replies.add(info, self.now());
        }
    }

    /// Warns, once for each key and pair of numbers, that another holder has a different number of permits.
    pub(super) fn report_disputes(&self) {
        for WantedLock { key, mode } in &self.request.lock.locks {
            let LockMode::Permits { .. } = mode else {
                continue;
            };
            for (mine, theirs) in self.core().shell.disputes.take(key) {
                let key = escape_control(key.shown());
                tracing::warn!(%key, mine, theirs, "calls disagree on the number of permits");
            }
        }
    }

    /// Returns the lock of another client, if that has replied to a call of this client within this time.
    fn reply_within(&self, time: Duration, key: &Key) -> Option<LockInfo> {
        self.core().holder_replies.within(time, key, self.now())
    }

    /// Returns the error of a call whose lock stayed taken. It describes the holder, and the locks that this call holds
    /// itself. If this call may run inside the hold, it says how to enter it.
    pub(super) fn taken(&self, key: &Key, remaining: Option<Duration>) -> LockError {
        let (request, waited) = (self.request, self.waited());
        let error = |remaining, holder: Option<Holder>, details: String| LockError::Taken {
            key: key.shown().to_owned(),
            waited,
            remaining,
            holder: holder.map(Box::new),
            details: details.into(),
        };
        // Without a wait, a taken lock is not an error.
        if request.wait == Wait::Never {
            return error(remaining, None, String::new());
        }
        let chain = call_chain::holds();
        let own_locks = self.own_locks(key, &chain);
        let (unpolled, own) = self.core().shell.read(|machine, now| {
            let held = machine.slot(key).and_then(|slot| slot.held(now).next());
            (
                machine.unpolled(key, now),
                held.map(|(_, hold)| hold.has_body()),
            )
        });
        if unpolled.is_some() {
            return error(unpolled, None, format!("{UNPOLLED}{own_locks}"));
        }
        let known = match &own {
            Some(_) => describe(self.core(), key).into_iter().next(),
            // A call that does not wait sends only one request.
            None => self.reply_within(RECENT, key).filter(|_| !self.asks_once()),
        };
        let (holder, owner, ttl) = match known {
            Some(LockInfo {
                holder: Some(holder),
                owner,
                ttl,
                ..
            }) => (holder, owner, ttl),
            Some(silent) => {
                return error(
                    remaining.or(silent.ttl),
                    None,
                    format!("{SILENT}{own_locks}"),
                );
            }
            None => return error(remaining, None, own_locks),
        };
        let is_here = holder.pid == process::id() && holder.host == shown(Identity::host());
        let (who, hint) = match &own {
            Some(has_body) => {
                // A hold that began during the wait cannot be one that this call runs inside.
                let is_earlier = holder.held_for >= waited;
                let may_be_inside = is_earlier && (chain.is_empty() || !has_body);
                let who = format!("another call of this client{}", holder.hold());
                let fits = self.request.mode_of(key).fits_inside(holder.mode);
                (
                    who,
                    only_if(may_be_inside, if fits { ENTER } else { NO_ENTRY }),
                )
            }
            None if is_here => {
                let is_inside = |outer: &EntryHandle| outer.owner().to_string() == owner;
                let who = format!("another client of this process, {holder}");
                (who, only_if(chain.iter().any(is_inside), SAME_CLIENT))
            }
            None => (holder.to_string(), ""),
        };
        let details = format!("; it is held by {who}{hint}{own_locks}");
        error(remaining.or(ttl), Some(holder), details)
    }

    /// Names the other locks of this client that the call holds. If it waited, the holder may wait for one of them.
    fn own_locks(&self, key: &Key, chain: &[EntryHandle]) -> String {
        let is_other =
            |held: &&EntryHandle| held.core().id == self.core().id && held.hold.key != *key;
        let others: Few<&str> = chain
            .iter()
            .filter(is_other)
            .map(EntryHandle::shown)
            .collect();
        if others.is_empty() {
            return String::new();
        }
        let hint = only_if(!self.asks_once(), IN_ORDER);
        format!("; this call holds {}{hint}", names(others.iter().copied()))
    }
}

/// Returns the text, or nothing.
fn only_if(holds: bool, text: &str) -> &str {
    if holds { text } else { "" }
}
