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
    pattern,
    store::{SendOptions, StoreError},
};

/// Parts of the locks of clients. A client that is silent has the part `None`. With its first part, a client says how
/// many locks it has lost so far.
pub(super) type Parts = BoxStream<'static, Result<Option<(Vec<LockInfo>, u64)>, StoreError>>;

/// Asks a client for its locks, part by part.
pub(super) fn parts_of(client: Uuid, handle: ClientHandle, pattern: String) -> Parts {
    let parts = stream::try_unfold(Some(None), move |after: Option<Option<Key>>| {
        let (handle, pattern) = (handle.clone(), pattern.clone());
        async move {
            let Some(after) = after else {
                return Ok(None);
            };
            let core = handle.core();
            let question = Question::Locks {
                pattern: pattern.clone(),
                after: after.clone(),
            };
            let report = ask(core, client, &question).await?;
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
            // A client may lie, and must neither name locks of others nor repeat its own.
            locks.retain(|info| {
                info.owner_id().is_some_and(|owner| owner.is_of(client))
                    && pattern::matches(&pattern, &info.key)
                    && after
                        .as_ref()
                        .is_none_or(|after| info.key.as_str() > after.as_str())
            });
            let end = locks.last().and_then(|info| Key::parse(&info.key).ok());
            let wanted = locks.iter_mut().filter(|info| info.wanted);
            join_all(wanted.map(|info| add_queue(core, info))).await;
            let lost = if after.is_none() { lost } else { 0 };
            Ok(Some((Some((locks, lost)), end.filter(|_| more).map(Some))))
        }
    });
    parts.boxed()
}

/// Adds the owners that wait on the store, unless the lock has changed hands.
async fn add_queue(core: &Core, info: &mut LockInfo) {
    let Ok(key) = Key::parse(&info.key) else {
        return;
    };
    let send = SendOptions::new(core.options.response_timeout);
    if let Ok(Some(entry)) = core.store.inspect(&key, send).await
        && entry.owner == info.owner
    {
        info.queue = entry.queue;
    }
}
