//! A part of the locks of one client.

use futures_util::future::join_all;
use uuid::Uuid;

use crate::{
    engine::{
        core::Core,
        driver::ClientHandle,
        messages::{Question, Report},
        queries::ask,
    },
    info::LockInfo,
    key::Key,
    options::Site,
    pattern,
    store::{SendOptions, StoreError},
};

/// The most parts of one client: millions of locks.
const MOST_PARTS: usize = 10_000;

/// A part of a client's locks that the list asks for.
pub(super) struct ClientPart {
    pub(super) client: Uuid,
    /// The key after which the part begins.
    pub(super) after: Option<Key>,
    /// The number of parts before this one.
    pub(super) number: usize,
}

/// The locks of a part.
pub(super) struct ClientLocks {
    pub(super) locks: Vec<LockInfo>,
    /// How many locks the client has lost so far, in its first part.
    pub(super) lost: u64,
    /// The next part, if the client has more to say.
    pub(super) next: Option<ClientPart>,
}

/// Asks a client for a part of its locks. Asks again if one that has replied before is silent. Returns `None` if it
/// is silent.
pub(super) async fn ask_for(
    handle: ClientHandle,
    pattern: String,
    part: ClientPart,
) -> Result<Option<ClientLocks>, StoreError> {
    let ClientPart {
        client,
        after,
        number,
    } = part;
    let core = handle.core();
    let question = Question::Locks {
        pattern: pattern.clone(),
        after: after.clone(),
    };
    let mut report = ask(core, client, &question).await?;
    if report.is_none() && number > 0 {
        report = ask(core, client, &question).await?;
    }
    let Some(Report::Locks {
        mut locks,
        more,
        lost,
    }) = report
    else {
        return Ok(None);
    };
    // A client may lie, and must not keep the list from ending.
    locks.retain(|info| {
        info.owner_id().is_some_and(|owner| owner.is_of(client))
            && pattern::matches(&pattern, &info.key)
            && after
                .as_ref()
                .is_none_or(|after| info.key.as_str() > after.as_str())
    });
    let last = locks.last().and_then(|info| Key::parse(&info.key).ok());
    let last = last.filter(|_| more && number < MOST_PARTS);
    let wanted = locks.iter_mut().filter(|info| info.wanted);
    join_all(wanted.map(|info| add_queue(core, info))).await;
    let next = last.map(|last| ClientPart {
        client,
        after: Some(last),
        number: number + 1,
    });
    Ok(Some(ClientLocks {
        locks,
        lost: if number == 0 { lost } else { 0 },
        next,
    }))
}

/// Adds the owners that wait on the store, unless the lock has changed hands.
async fn add_queue(core: &Core, info: &mut LockInfo) {
    let is_hidden = core.options.redact_keys;
    let Ok(key) = Key::parse_hidden(&info.key, is_hidden, Site::default()) else {
        return;
    };
    let send = SendOptions::background(core.options.response_timeout);
    match core.store.inspect(&key, send).await {
        Ok(Some(entry)) if entry.owner == info.owner => info.queue = entry.queue,
        Ok(_) => {}
        Err(error) => {
            let error = error.hide([&key]);
            tracing::debug!(%key, %error, "could not read the queue of a lock");
        }
    }
}
