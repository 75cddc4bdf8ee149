//! Questions between clients: who holds a lock, which locks a client holds, and the request to release one. The
//! background of a client answers; the store only carries the messages.

mod message;

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use uuid::Uuid;

#[cfg(fuzzing)]
pub(crate) use self::message::read;
use self::message::{Message, ReportWriter};
pub(crate) use self::message::{Question, Report};
use crate::{
    engine::{core::Core, ownership::Ownership},
    error::LostCause,
    info::LockInfo,
    key::Key,
    owner::OwnerId,
    pattern,
    store::StoreError,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// How many questions may wait for the background. Further ones are not answered.
const MOST_QUESTIONS: usize = 256;
/// How long a holder may take to answer. A longer silence says that it is stuck or cut off.
pub(crate) const SILENCE: Duration = Duration::from_millis(200);

/// The questions that this client received, and those that it has asked.
pub(crate) struct Queries {
    answers: bool,
    received: mpsc::Sender<Received>,
    inbox: tokio::sync::Mutex<mpsc::Receiver<Received>>,
    asked: Mutex<HashMap<u64, oneshot::Sender<Report>>>,
    number: AtomicU64,
    is_refusal_logged: AtomicBool,
}

/// A question that this client received.
struct Received {
    from: Uuid,
    number: u64,
    question: Question,
}

impl Queries {
    pub(crate) fn new(answers: bool) -> Self {
        let (received, inbox) = mpsc::channel(MOST_QUESTIONS);
        Self {
            answers,
            received,
            inbox: tokio::sync::Mutex::new(inbox),
            asked: Mutex::default(),
            number: AtomicU64::new(1),
            is_refusal_logged: AtomicBool::new(false),
        }
    }

    /// Handles a message of another client. Messages that make no sense are ignored.
    pub(crate) fn on_message(&self, message: &[u8]) {
        match message::read(message) {
            Some(Message::Question {
                from,
                number,
                question,
            }) if self.answers => {
                // If the queue is full, the silence tells that this client is busy.
                let _ = self.received.try_send(Received {
                    from,
                    number,
                    question,
                });
            }
            Some(Message::Report { number, report }) => {
                let asked = self.asked().remove(&number);
                if let Some(asked) = asked {
                    let _ = asked.send(report);
                }
            }
            Some(Message::Question { .. }) | None => {}
        }
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Report>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self) -> Asked<'_> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (sender, report) = oneshot::channel();
        self.asked().insert(number, sender);
        Asked {
            queries: self,
            number,
            report,
        }
    }
}

/// A question without an answer yet. Forgets it when dropped.
struct Asked<'a> {
    queries: &'a Queries,
    number: u64,
    report: oneshot::Receiver<Report>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.queries.asked().remove(&self.number);
    }
}

/// Asks a client. Returns `None` if it does not exist or is silent for this long.
pub(crate) async fn ask(
    core: &Core,
    client: Uuid,
    question: &Question,
    within: Duration,
) -> Result<Option<Report>, StoreError> {
    let mut asked = core.queries.ask();
    let message = message::question(core.id, asked.number, question);
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
            if !error.transient && !core.queries.is_refusal_logged.swap(true, Ordering::Relaxed) {
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
    let mut inbox = core.queries.inbox.lock().await;
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
    let (key, owner) = (&ownership.key, ownership.owner);
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
        tracing::warn!(%key, %owner, by, %cause, "lock lost");
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
