//! The locks of one client.

use futures_util::{
    StreamExt,
    future::join_all,
    stream::{self, BoxStream},
};
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

/// Parts of the locks of clients. A client that is silent has the part `None`. With its first part, a client says how
/// many locks it has lost so far.
pub(super) type Parts = BoxStream<'static, Result<Option<(Vec<LockInfo>, u64)>, StoreError>>;

/// Asks a client for its locks, part by part. Asks again if one that has replied before is silent.
pub(super) fn parts_of(client: Uuid, handle: ClientHandle, pattern: String) -> Parts {
    let first = Some((None, 0));
    let parts = stream::try_unfold(first, move |part| {
        let (handle, pattern) = (handle.clone(), pattern.clone());
        async move {
            let Some((after, number)) = part else {
                return Ok(None);
            };
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
                databases,
                more,
                lost,
            }) = report
            else {
                return Ok(Some((None, None)));
            };
            if databases != core.store.databases() {
                return Ok(Some((Some((Vec::new(), 0)), None)));
            }
            // A client may lie, and must not keep the list from ending.
            locks.retain(|info| {
                info.owner_id().is_some_and(|owner| owner.is_of(client))
                    && pattern::matches(&pattern, &info.key)
                    && after
                        .as_ref()
                        .is_none_or(|after| info.key.as_str() > after.as_str())
            });
            let last = locks.last().and_then(|info| Key::parse(&info.key).ok());
            let next = last.filter(|_| more && number < MOST_PARTS);
            let wanted = locks.iter_mut().filter(|info| info.wanted);
            join_all(wanted.map(|info| add_queue(core, info))).await;
            let lost_so_far = if number == 0 { lost } else { 0 };
            Ok(Some((
                Some((locks, lost_so_far)),
                next.map(|last| (Some(last), number + 1)),
            )))
        }
    });
    parts.boxed()
}

/// Adds the owners that wait on the store, unless the lock has changed hands.
async fn add_queue(core: &Core, info: &mut LockInfo) {
    let is_hidden = core.options.redact_keys;
    let Ok(key) = Key::parse_hidden(&info.key, is_hidden, Site::default()) else {
        return;
    };
    let send = SendOptions::new(core.options.response_timeout);
    match core.store.inspect(&key, send).await {
        Ok(Some(entry)) if entry.owner == info.owner => {
            info.queue = entry.queue;
        }
        Ok(_) => {}
        Err(error) => {
            let error = error.hide([&key]);
            tracing::debug!(%key, %error, "could not read the queue of a lock");
        }
    }
}
