//! Announces holds and their ends to all clients of the store, one after the other, and tries again while the store does
//! not reply.

use std::sync::{Arc, Once};

use futures_util::future::join_all;
use uuid::Uuid;

use crate::{
    backoff::Backoff,
    engine::{
        announcements::News,
        core::Core,
        hold_record::HoldRecord,
        messages::{Message, written},
        queries::describe,
    },
    info::LockInfo,
    store::StoreError,
};

/// How many clients get the message at once.
const AT_ONCE: usize = 64;

/// Announces holds for as long as the client lives.
pub(in crate::engine) async fn run(core: Arc<Core>) {
    static WARNED: Once = Once::new();
    let announcements = &core.shell.announcements;
    let mut backoff = Backoff::default();
    loop {
        let hold = announcements.next().await;
        match announce(&core, &hold).await {
            Ok(()) => backoff = Backoff::default(),
            // Tried again, because the listeners would otherwise keep the former holder.
            Err(error) if error.transient => {
                announcements.announce(&hold);
                tokio::time::sleep(backoff.next()).await;
            }
            Err(error) => WARNED.call_once(|| {
                tracing::warn!(
                    key = %hold.key, %error,
                    "could not announce a holder: observers learn of it when they ask"
                );
            }),
        }
    }
}

async fn announce(core: &Core, hold: &HoldRecord) -> Result<(), StoreError> {
    let is_it = |info: &LockInfo| info.token == Some(hold.token);
    let info = describe(core, &hold.key).into_iter().find(is_it);
    let (news, databases) = (
        match info {
            Some(info) => News::Holds(Box::new(info)),
            None => News::Ended(hold.key.clone(), hold.token),
        },
        core.store.databases(),
    );
    core.shell.announcements.pass_on(&news);
    let message = written(&match news {
        News::Holds(info) => Message::Announcement(databases, info),
        News::Ended(key, token) => Message::Ended(databases, key, token),
    });
    let limit = core.options.response_timeout;
    let mut clients = core.store.clients(limit).await?;
    clients.retain(|client| *client != core.id);
    let mut outcome = Ok(());
    for clients in clients.chunks(AT_ONCE) {
        let tell = |client: &Uuid| core.store.publish(*client, message.clone(), limit);
        let told = join_all(clients.iter().map(tell)).await;
        // One client that cannot be reached does not keep the message from the others.
        for told in told {
            outcome = outcome.and(told.map(drop));
        }
    }
    outcome
}
