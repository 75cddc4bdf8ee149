//! Questions between clients: asks who holds or awaits a lock, and replies to that and to revocations. The background
//! of a client replies; the store only carries the messages.

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use futures_util::future::join_all;
use rlock_proto::{
    escape_control::shown,
    key::Key,
    lease::Time,
    machine::{Event, Hold, Ownership, Phase, Revoked, Slot},
    owner::OwnerId,
    store::{StoredLock, TOKENS},
};
use tokio::time::timeout;
use tracing::field::display;
use uuid::Uuid;

use crate::{
    engine::{
        core::Core,
        messages::{Answer, Message, Question, Report, Way, fill, written},
    },
    info::{Holder, LockInfo, Waiter},
    options::Identity,
    pattern,
    store::StoreError,
};

/// Asks a client. Returns `None` if it does not exist or is silent.
pub(crate) async fn ask(
    core: &Core,
    client: Uuid,
    question: &Question,
) -> Result<Option<Report>, StoreError> {
    let (number, report) = core.shell.messages.ask();
    let silence = question.longest_silence();
    let message = written(&Message::Question(core.id, number, question.clone()));
    let limit = core.options.response_timeout;
    if !core.store.publish(client, message, limit).await? {
        return Ok(None);
    }
    let mut report = timeout(silence, report).await.ok().and_then(Result::ok);
    if let Some(Report::Locks { locks, .. }) = &mut report {
        for lock in locks {
            // Each client reports its own holds.
            lock.holder_count = 1;
            let mode = lock.mode();
            lock.permits_taken = mode.permits_taken().into();
            if let Some(holder) = &mut lock.holder {
                holder.mode = mode;
            }
        }
    }
    Ok(report)
}

/// Returns owners as the store names them.
pub(crate) fn texts(owners: &[OwnerId]) -> Vec<String> {
    owners.iter().map(OwnerId::to_string).collect()
}

/// Returns the description of a lock from the store's entry, without its holder.
pub(crate) fn info_of(key: &Key, entry: StoredLock) -> LockInfo {
    LockInfo {
        key: key.as_str().to_owned(),
        owner: entry.owner,
        depth: entry.count,
        ttl: entry.ttl,
        token: entry.fence.map(|fence| fence * TOKENS),
        retained: false,
        holder: None,
        address: None,
        queued_owners: texts(&entry.queue),
        waiters: Vec::new(),
        holder_count: entry.holders,
        permits_taken: entry.permits_taken,
        other_owners: texts(&entry.others),
        wanted: false,
    }
}

/// Why a holder's description is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Its client does not reply.
    Silent,
    /// It could not be asked, or it no longer has the lock.
    Other,
}

/// Asks the client of this owner about its lock.
pub(crate) async fn ask_holder(
    core: &Core,
    key: &Key,
    owner: OwnerId,
) -> Result<LockInfo, Unanswered> {
    static WARNED: Once = Once::new();
    let question = Question::Lock { key: key.clone() };
    let locks = match ask(core, owner.client(), &question).await {
        Ok(Some(Report::Locks { locks, .. })) => locks,
        Ok(None) => return Err(Unanswered::Silent),
        Err(error) if !error.transient => {
            let warn = || tracing::warn!(%error, "holders of locks cannot be asked who they are");
            WARNED.call_once(warn);
            return Err(Unanswered::Other);
        }
        _ => return Err(Unanswered::Other),
    };
    // Replies about another lock or an earlier owner do not count.
    let owner = owner.to_string();
    let is_it = |info: &LockInfo| info.key == key.as_str() && info.owner == owner;
    locks.into_iter().find(is_it).ok_or(Unanswered::Other)
}

/// How many waiters are asked who they are.
const MOST_WAITERS: usize = 10;

/// Asks the clients of the first waiters who they are, all at once. Leaves out those that are silent.
pub(crate) async fn ask_waiters(core: &Core, queue: &[OwnerId]) -> Vec<Waiter> {
    let asked = queue.iter().take(MOST_WAITERS).map(|owner| async {
        let report = if owner.is_of(core.id) {
            Some(describe_client(core))
        } else {
            let reply = ask(core, owner.client(), &Question::Client).await;
            reply.ok().flatten()
        };
        let Some(Report::Client {
            service,
            version,
            host,
            pid,
        }) = report
        else {
            return None;
        };
        Some(Waiter {
            owner: owner.to_string(),
            service,
            version,
            host,
            pid,
        })
    });
    join_all(asked).await.into_iter().flatten().collect()
}

fn describe_client(core: &Core) -> Report {
    let identity = &core.options.identity;
    Report::Client {
        service: identity.service.as_deref().map(shown),
        version: identity.version.as_deref().map(shown),
        host: shown(Identity::host()),
        pid: std::process::id(),
    }
}

/// The time limit for sending one answer, because the next question has to wait for it.
const PUBLISH: Duration = Duration::from_millis(200);

/// The number of locks that are looked up at once for a list: more than a report has room for.
const AT_ONCE: usize = 1024;

/// Replies to questions for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    let mut inbox = core.shell.messages.inbox.lock().await;
    while let Some((from, number, question, at)) = inbox.recv().await {
        // The asking client no longer waits for the answer. The lock is not given up then.
        if at.elapsed() > question.longest_silence() {
            continue;
        }
        let message = written(&Message::Report(number, answer(&core, question)));
        // To the client that asked, a lost reply is silence.
        if let Err(error) = core.store.publish(from, message, PUBLISH).await {
            tracing::debug!(%error, "could not reply to a question about a lock");
        }
    }
}

fn answer(core: &Core, question: Question) -> Report {
    let (locks, more) = match question {
        Question::Lock { key } => (fill(describe(core, &key).into_iter()), false),
        Question::Locks { pattern, after } => locks(core, &pattern, after.as_ref()),
        Question::Client => return describe_client(core),
        Question::Release { owner, .. } if !owner.is_of(core.id) => {
            return Report::Told(Answer::NotHeld);
        }
        Question::Extend {
            key,
            owner,
            token,
            lease,
        } => {
            return Report::Told(extend(core, key, owner, token, lease));
        }
        Question::Release {
            way,
            key,
            owner,
            by,
        } => {
            let (token, at_once) = match way {
                Way::Ask => return Report::Told(request_release(core, &key, owner, &by)),
                Way::Revoke => (None, false),
                Way::Take { token } => (token, true),
            };
            // A grant that no call has picked up is given up, too.
            let event = Event::Revoke { token, at_once };
            let revoked = core.shell.revoke(key.clone(), owner.sequence(), event, &by);
            if revoked == Revoked::Retained {
                retained_is_released(core, &key, owner, &by);
            }
            return Report::Told(match revoked {
                Revoked::OtherHold => Answer::OtherHold,
                Revoked::NotHeld => Answer::NotHeld,
                Revoked::Lost | Revoked::Retained | Revoked::Given => Answer::Done,
            });
        }
    };
    let (databases, lost) = (core.store.databases(), core.shell.losses());
    Report::Locks {
        locks,
        databases,
        more,
        lost,
    }
}

/// Extends the hold with this token, if this client has it.
fn extend(core: &Core, key: Key, owner: OwnerId, token: u64, lease: Duration) -> Answer {
    let hold = core.shell.hold(owner.sequence());
    match hold.filter(|hold| owner.is_of(core.id) && hold.key == key) {
        None => Answer::NotHeld,
        Some(hold) if hold.token != token => Answer::OtherHold,
        Some(_) => {
            let event = Event::Extend { token, lease };
            core.shell.on_event(key, Some(owner.sequence()), event);
            Answer::Done
        }
    }
}

/// Passes the request to release a lock on to its holds. Releases a retained lock, because no call uses it.
fn request_release(core: &Core, key: &Key, owner: OwnerId, by: &str) -> Answer {
    let (shell, sequence) = (&core.shell, owner.sequence());
    let is_retained = shell.read(|machine, _| {
        let own = machine.own(key, sequence);
        own.is_some_and(|own| own.phase() == Phase::Retained)
    });
    // Afterwards, the client does not keep the lock for its own calls, as for any other client that waits.
    shell.on_event(key.clone(), Some(sequence), Event::Wanted);
    let mut holds = shell.holds(sequence);
    holds.retain(|hold| hold.key == *key);
    for hold in &holds {
        hold.request_release();
    }
    if let Some(first) = holds.first() {
        first.in_span(|| {
            let (key, holds) = (shown(first.key.shown()), holds.len());
            tracing::info!(%key, %owner, by, holds, "another client requests the release of the lock");
        });
        Answer::Done
    } else if is_retained {
        retained_is_released(core, key, owner, by);
        Answer::Done
    } else {
        Answer::NotHeld
    }
}

fn retained_is_released(core: &Core, key: &Key, owner: OwnerId, by: &str) {
    // The key of a question is not hidden.
    let key = (!core.options.redact_keys).then(|| display(key));
    tracing::info!(key, %owner, by, "a retained lock is released for another client");
}

/// Returns as many locks as a report has room for, and whether there may be more.
fn locks(core: &Core, pattern: &str, after: Option<&Key>) -> (Vec<LockInfo>, bool) {
    let found: Vec<LockInfo> = core.shell.read(|machine, now| {
        let is_next = |slot: &&Slot| after.is_none_or(|after| slot.key() > after);
        let is_meant = |slot: &&Slot| pattern::matches(pattern, slot.key().as_str());
        let slots = machine.slots().filter(is_next).filter(is_meant);
        let infos = slots.flat_map(|slot| infos(core, slot, now));
        infos.take(AT_ONCE).collect()
    });
    let mut locks = fill(found.iter().map(|info| traced(core, info.clone())));
    let next = found.get(locks.len()).map(|info| &info.key);
    // The next part begins with another key.
    let is_cut = |info: &LockInfo| Some(&info.key) == next;
    if locks.first().is_some_and(|first| !is_cut(first)) {
        while locks.pop_if(|last| is_cut(last)).is_some() {}
    }
    let more = locks.len() < found.len();
    (locks, more)
}

/// Describes this client's ownerships of a lock.
pub(crate) fn describe(core: &Core, key: &Key) -> Vec<LockInfo> {
    let infos: Vec<LockInfo> = core.shell.read(|machine, now| {
        let slot = machine.slot(key).into_iter();
        slot.flat_map(|slot| infos(core, slot, now)).collect()
    });
    infos.into_iter().map(|info| traced(core, info)).collect()
}

/// Adds the trace id of the hold, and what its passenger tells.
fn traced(core: &Core, mut info: LockInfo) -> LockInfo {
    let hold = OwnerId::parse(&info.owner).and_then(|owner| core.shell.hold(owner.sequence()));
    if let (Some(hold), Some(holder)) = (hold, &mut info.holder) {
        holder.trace_id = hold.trace_id().map(shown);
        // The next hold of the same owner may have begun since.
        if info.token == Some(hold.token)
            && let Some(passenger) = hold.passenger()
        {
            passenger.describe(holder);
        }
    }
    info
}

/// Returns the descriptions that this client sends, the current ownership first.
fn infos(core: &Core, slot: &Slot, now: Time) -> impl Iterator<Item = LockInfo> {
    let held = slot.held(now);
    held.map(move |(own, hold)| info(core, slot, own, hold, now))
}

fn info(core: &Core, slot: &Slot, own: &Ownership, hold: &Hold, now: Time) -> LockInfo {
    let is_current = slot
        .current()
        .is_some_and(|current| current.owner == own.owner);
    let identity = &core.options.identity;
    let text = |text: &str| (!text.is_empty()).then(|| shown(text));
    LockInfo {
        key: slot.key().as_str().to_owned(),
        owner: core.owner_id(own.owner, own.mode).to_string(),
        depth: own.entries().max(1),
        ttl: Some(own.rest(now)),
        token: Some(hold.token),
        retained: own.phase() == Phase::Retained,
        holder: Some(Holder {
            mode: hold.used,
            service: identity.service.as_deref().map(shown),
            version: identity.version.as_deref().map(shown),
            host: shown(Identity::host()),
            pid: std::process::id(),
            held_for: now.since(hold.since),
            label: text(hold.site.label_or("")),
            function: hold.site.function().as_deref().and_then(text),
            trace_id: None,
            waiter_count: slot.waiters(),
            renewals: hold.renewals,
            revoked_for: hold.revoked_at.map(|at| now.since(at)),
            value: None,
            values: 0,
        }),
        address: None,
        queued_owners: Vec::new(),
        waiters: Vec::new(),
        holder_count: 1,
        permits_taken: own.mode.permits_taken().into(),
        other_owners: Vec::new(),
        // Calls do not join a shared ownership any more while others wait for it.
        wanted: slot.others_wait() || !is_current,
    }
}
