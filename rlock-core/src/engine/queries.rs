//! Questions between clients: who holds a lock, which locks a client holds, and the request to release one. The
//! background of a client replies; the store only carries the messages.

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    engine::{
        core::Core,
        messages::{self, Answer, Question, Received, Report, ReportWriter},
        ownership::{Ownership, Revocation},
    },
    error::LostCause,
    escape_control::escape_control,
    info::LockInfo,
    key::Key,
    owner::OwnerId,
    pattern,
    store::StoreError,
};

/// Asks a client. Returns `None` if it does not exist or is silent.
pub(crate) async fn ask(
    core: &Core,
    client: Uuid,
    question: &Question,
) -> Result<Option<Report>, StoreError> {
    let (number, report) = core.messages.ask();
    let message = messages::question(core.id, number, question);
    let limit = core.options.response_timeout;
    if !core.store.publish(client, message, limit).await? {
        return Ok(None);
    }
    let report = timeout(question.longest_silence(), report).await;
    Ok(report.ok().and_then(Result::ok))
}

/// Asks the client of this owner about its lock. Returns the reply, or `None` if it is silent.
pub(crate) async fn ask_holder(core: &Core, key: &Key, owner: OwnerId) -> Option<LockInfo> {
    let question = Question::Lock { key: key.clone() };
    let report = ask(core, owner.client(), &question).await;
    if let Err(error) = &report
        && !error.transient
    {
        static WARNED: Once = Once::new();
        WARNED.call_once(|| {
            tracing::warn!(%error, "holders of locks cannot be asked who they are");
        });
    }
    let Ok(Some(Report::Locks { locks, .. })) = report else {
        return None;
    };
    // An answer about another lock, or an earlier owner, is none.
    let owner = owner.to_string();
    let is_it = |info: &LockInfo| info.key == key.as_str() && info.owner == owner;
    locks.into_iter().find(is_it)
}

/// The limit for sending one answer. The next question waits meanwhile.
const PUBLISH: Duration = Duration::from_millis(200);

/// The number of keys that are looked up at once for a list.
const AT_ONCE: usize = 512;

/// Replies to questions for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    let mut inbox = core.messages.inbox.lock().await;
    while let Some(received) = inbox.recv().await {
        if received.is_too_late() {
            continue;
        }
        let message = answer(&core, &received);
        // To the client that asked, a lost reply is silence.
        let published = core.store.publish(received.from, message, PUBLISH);
        if let Err(error) = published.await {
            tracing::debug!(%error, "could not reply to a question about a lock");
        }
    }
}

fn answer(core: &Core, received: &Received) -> Vec<u8> {
    let mut report = ReportWriter::new(received.number);
    let databases = core.store.databases();
    match &received.question {
        Question::Lock { key } => {
            if let Some(info) = describe(core, key) {
                report.add(&info);
            }
            report.locks(&databases, false, core.watchdog.losses())
        }
        Question::Locks { pattern, after } => {
            let mut after = after.clone();
            let more = loop {
                let is_meant = |key: &Key| {
                    after
                        .as_ref()
                        .is_none_or(|after| key.as_str() > after.as_str())
                        && pattern::matches(pattern, key.as_str())
                };
                let keys = core.queues.first_keys(AT_ONCE, is_meant);
                let add = |key| describe(core, key).is_some_and(|info| report.add(&info));
                if keys.iter().any(add) {
                    break true;
                }
                let Some(last) = keys.last() else {
                    break false;
                };
                after = Some(last.clone());
            };
            report.locks(&databases, more, core.watchdog.losses())
        }
        Question::Release {
            key,
            owner,
            token,
            at_once,
            by,
        } => {
            // A grant that no call has picked up is revoked, too.
            let own = core.queues.current(key).filter(|own| own.owner == *owner);
            let answer = own.map_or(Answer::NotHeld, |own| {
                give_up(core, &own, *token, *at_once, by)
            });
            messages::released(received.number, answer)
        }
    }
}

/// Gives a lock up because another client asks for that.
fn give_up(
    core: &Core,
    ownership: &Arc<Ownership>,
    token: Option<u64>,
    at_once: bool,
    by: &str,
) -> Answer {
    let revocation = ownership.revoke(token, at_once);
    core.watchdog.forget(ownership);
    core.ended();
    let (key, owner) = (escape_control(ownership.shown()), ownership.owner);
    match revocation {
        Revocation::Lost => {
            core.watchdog.count_loss(ownership, LostCause::Revoked);
            let cause = if at_once {
                "another client took it by force"
            } else {
                "another client asked to release it"
            };
            ownership.in_span_of_loss(|| {
                tracing::warn!(%key, %owner, by, %cause, "lock lost");
            });
        }
        Revocation::Retained => {
            tracing::info!(%key, %owner, by, "a retained lock is released for another client");
        }
        Revocation::Given => {}
        Revocation::OtherHold => return Answer::OtherHold,
        Revocation::NotHeld => return Answer::NotHeld,
    }
    Answer::Released
}

/// Describes a lock of this client, if it owns it.
pub(crate) fn describe(core: &Core, key: &Key) -> Option<LockInfo> {
    let ownership = core.queues.owned(key)?;
    let (waiters, wanted) = core.queues.waiters(key);
    let mut info = ownership.describe(&core.options.identity, waiters)?;
    info.wanted = wanted;
    Some(info)
}
