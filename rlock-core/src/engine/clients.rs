//! The clients of this process. A call that timed out looks here for a holder in its own process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::{engine::core::Core, key::Key, owner::OwnerId};

static CLIENTS: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());

fn clients() -> MutexGuard<'static, Vec<Weak<Core>>> {
    CLIENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn register(core: &Arc<Core>) {
    let mut clients = clients();
    clients.retain(|client| client.strong_count() > 0);
    clients.push(Arc::downgrade(core));
}

/// Returns all live clients. Dropping the last handle of a client may end it, so never drop one
/// under the mutex.
fn present() -> Vec<Arc<Core>> {
    clients().iter().filter_map(Weak::upgrade).collect()
}

/// Returns whether another client holds a lock of this key, in any store.
pub(crate) fn another_holds(key: &Key, than: &Core) -> bool {
    let mut others = present().into_iter().filter(|core| core.id != than.id);
    others.any(|core| core.queues.owned(key).is_some())
}

/// Returns whether the owner belongs to a client of this process.
pub(crate) fn is_local(owner: OwnerId) -> bool {
    present().iter().any(|core| owner.is_of(core.id))
}
