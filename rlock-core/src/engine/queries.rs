//! Questions between clients: who holds a lock, which locks a client holds, and the request to release one. The
//! background of a client answers; the store only carries the messages.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    engine::{
        core::Core,
        messages::{self, Question, Received, Report, ReportWriter},
        ownership::Ownership,
    },
    error::LostCause,
    escape_control::escape_control,
    info::LockInfo,
    key::Key,
    owner::OwnerId,
    pattern,
    store::StoreError,
    sync::atomic::Ordering,
};

/// How long a holder may take to answer. A longer silence says that it is stuck or cut off.
pub(crate) const SILENCE: Duration = Duration::from_millis(200);

/// Asks a client. Returns `None` if it does not exist or is silent for this long.
pub(crate) async fn ask(
    core: &Core,
    client: Uuid,
    question: &Question,
    within: Duration,
) -> Result<Option<Report>, StoreError> {
    let mut asked = core.messages.ask();
    let message = messages::question(core.id, asked.number, question);
    let limit = core.options.response_timeout;
    if !core.store.publish(client, &message, limit).await? {
        return Ok(None);
    }
    let report = timeout(within, &mut asked.report).await;
    Ok(report.ok().and_then(Result::ok))
}

/// Asks the client of this owner about its lock. Returns what it says, or `None` if it is silent.
pub(crate) async fn ask_holder(
    core: &Core,
    key: &Key,
    owner: OwnerId,
    within: Duration,
) -> Option<LockInfo> {
    let question = Question::Lock { key: key.clone() };
    let report = match ask(core, owner.client(), &question, within).await {
        Ok(report) => report?,
        Err(error) => {
            if !error.transient
                && !core
                    .messages
                    .is_refusal_logged
                    .swap(true, Ordering::Relaxed)
            {
                tracing::warn!(%error, "holders of locks cannot be asked who they are");
            }
            return None;
        }
    };
    let Report::Locks { locks, .. } = report else {
        return None;
    };
    // An answer about another lock, or an earlier owner, is none.
    let owner = owner.to_string();
    let is_it = |info: &LockInfo| info.key == key.as_str() && info.owner == owner;
    locks.into_iter().find(is_it)
}

/// Answers questions for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    let mut inbox = core.messages.inbox.lock().await;
    while let Some(Received {
        from,
        number,
        question,
    }) = inbox.recv().await
    {
        let message = answer(&core, number, &question);
        // Whoever asked takes a lost answer for silence.
        if let Err(error) = core
            .store
            .publish(from, &message, core.options.response_timeout)
            .await
        {
            tracing::debug!(%error, "could not answer a question about a lock");
        }
    }
}

fn answer(core: &Core, number: u64, question: &Question) -> Vec<u8> {
    let mut report = ReportWriter::new(number);
    match question {
        Question::Lock { key } => {
            let info = core.queues.owned(key).and_then(|own| describe(core, &own));
            if let Some(info) = info {
                report.add(&info);
            }
            report.locks(false)
        }
        Question::Locks { pattern, after } => {
            let mut owned = core.queues.all_owned();
            owned.retain(|own| {
                after.as_ref().is_none_or(|after| own.key > *after)
                    && pattern::matches(pattern, own.key.as_str())
            });
            owned.sort_unstable_by(|one, other| one.key.cmp(&other.key));
            let mut owned = owned.iter();
            for info in owned.by_ref().filter_map(|own| describe(core, own)) {
                if report.add(&info) {
                    break;
                }
            }
            report.locks(owned.len() > 0)
        }
        Question::Release {
            key,
            owner,
            token,
            at_once,
            by,
        } => {
            let own = core.queues.owned(key).filter(|own| own.owner == *owner);
            let released = own.is_some_and(|own| give_up(core, &own, *token, *at_once, by));
            report.released(released)
        }
    }
}

/// Gives a lock up because another client asks for that. Returns `false` if the hold has another token, or has ended.
fn give_up(
    core: &Core,
    ownership: &Arc<Ownership>,
    token: Option<u64>,
    at_once: bool,
    by: &str,
) -> bool {
    if token.is_some_and(|token| token != ownership.token()) {
        return false;
    }
    let (key, owner) = (escape_control(ownership.shown()), ownership.owner);
    if ownership.is_retained() {
        tracing::info!(%key, %owner, by, "a retained lock is released for another client");
        ownership.end_retention();
        return true;
    }
    let is_lost = if at_once {
        core.watchdog.lose_unreported(ownership, LostCause::Revoked)
    } else {
        ownership.lose_hold(LostCause::Revoked)
    };
    if is_lost {
        let cause = LostCause::Revoked;
        ownership.metrics().lost(cause);
        ownership.in_span_of_loss(|| {
            tracing::warn!(%key, %owner, by, %cause, "lock lost");
        });
    }
    // A hold that is asked again is about to end all the same.
    is_lost || ownership.lost() == Some(LostCause::Revoked)
}

/// Describes a lock of this client, unless it has just been released.
pub(crate) fn describe(core: &Core, ownership: &Ownership) -> Option<LockInfo> {
    let (waiters, wanted) = core.queues.waiters(&ownership.key);
    let mut info = ownership.describe(&core.options.identity, waiters)?;
    info.wanted = wanted;
    Some(info)
}
