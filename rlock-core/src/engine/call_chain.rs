//! Which locks the current call is inside, so that a nested call finds the hold of its caller. Each thread has the
//! scope of the future that it polls, or of the call that it runs. Other Tokio tasks that a body polls on its thread,
//! as in a `LocalSet`, are outside of that scope.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    iter::successors,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use rlock_proto::{few::Few, machine::Inside};
use tokio::task;
use uuid::Uuid;

use crate::engine::{driver::ClientHandle, entry::EntryHandle};

thread_local! {
    static SCOPE: RefCell<Scope> = RefCell::default();
}

/// The context that a call inherits from its callers: the default client, and the locks that they are inside.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    client: Option<ClientHandle>,
    chain: Option<Arc<ChainLink>>,
    /// The task that is inside, or `None` outside of Tokio's tasks.
    task: Option<task::Id>,
}

/// One call or guard of the chain, with its locks. Links are immutable, so branches of a `join!` cannot see each
/// other's locks.
pub(crate) struct ChainLink {
    /// One entry for each key, in the order in which the keys were given.
    pub(crate) entries: Few<EntryHandle>,
    outer: Option<Arc<ChainLink>>,
}

impl ChainLink {
    /// Returns the entries up to this link, innermost link first. Holds that have ended, and outer entries of the same
    /// hold, are left out: tasks that spawn each other would collect them. The innermost link stays whole, for
    /// [`innermost`].
    pub(crate) fn locks(&self) -> Vec<Few<EntryHandle>> {
        let mut locks = vec![self.entries.clone()];
        for link in successors(self.outer.as_deref(), |link| link.outer.as_deref()) {
            let is_new = |entry: &&EntryHandle| {
                let is_same = |inner: &EntryHandle| inner.is_in_hold_of(entry);
                entry.is_live() && !locks.iter().flatten().any(is_same)
            };
            let entries: Few<EntryHandle> = link.entries.iter().filter(is_new).cloned().collect();
            if !entries.is_empty() {
                locks.push(entries);
            }
        }
        locks
    }
}

impl Scope {
    pub(crate) fn current() -> Self {
        read(Clone::clone)
    }

    /// Returns the current scope for another task, with the locks of [`ChainLink::locks`].
    pub(crate) fn carried() -> Self {
        let scope = Self::current();
        let locks = scope.chain.as_deref().map(ChainLink::locks);
        let outside = Self {
            chain: None,
            ..scope
        };
        let locks = locks.into_iter().flatten().rev();
        locks.fold(outside, Self::inside)
    }

    pub(crate) fn with_client(self, client: ClientHandle) -> Self {
        Self {
            client: Some(client),
            ..self
        }
    }

    pub(crate) fn inside(self, entries: Few<EntryHandle>) -> Self {
        let link = ChainLink {
            entries,
            outer: self.chain,
        };
        Self {
            chain: Some(Arc::new(link)),
            ..self
        }
    }

    /// Runs a future in this scope. Its polls and destructors see the scope; other futures do not.
    pub(crate) async fn around<F: Future>(self, future: F) -> F::Output {
        let mut inside = Around {
            scope: self,
            future: pin!(Some(future)),
        };
        poll_fn(|cx| {
            let _entered = inside.scope.enter();
            match inside.future.as_mut().as_pin_mut() {
                Some(future) => future.poll(cx),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Makes this the thread's scope until the returned value is dropped.
    pub(crate) fn enter(&mut self) -> ScopeEntered<'_> {
        self.begin();
        ScopeEntered(self)
    }

    /// Makes this the scope of the thread's present task, and keeps the previous scope for [`swap`](Self::swap).
    pub(crate) fn begin(&mut self) {
        self.task = task::try_id();
        self.swap();
    }

    /// Swaps this scope with the thread's. A thread that ends has none.
    pub(crate) fn swap(&mut self) {
        let _ = SCOPE.try_with(|present| mem::swap(&mut *present.borrow_mut(), self));
    }
}

/// A scope in use by the thread. Dropping it restores the previous scope.
pub(crate) struct ScopeEntered<'a>(&'a mut Scope);

impl Drop for ScopeEntered<'_> {
    fn drop(&mut self) {
        self.0.swap();
    }
}

/// A future with its scope. Its destructor runs in that scope, too.
struct Around<'a, F> {
    scope: Scope,
    future: Pin<&'a mut Option<F>>,
}

impl<F> Drop for Around<'_, F> {
    fn drop(&mut self) {
        let _entered = self.scope.enter();
        self.future.set(None);
    }
}

fn read<T: Default>(read: impl FnOnce(&Scope) -> T) -> T {
    let of_this_task = |scope: &Scope| (scope.task == task::try_id()).then(|| read(scope));
    let of_this_task = SCOPE.try_with(|scope| of_this_task(&scope.borrow()));
    of_this_task.ok().flatten().unwrap_or_default()
}

/// Returns the client that the innermost `LockClient::scope` set.
pub(crate) fn client() -> Option<ClientHandle> {
    read(|scope| scope.client.clone())
}

/// Returns the holds of `client` that the current call is inside, the innermost first, each once.
pub(crate) fn inside(client: Uuid) -> Few<Inside> {
    read(|scope| {
        let of_client = |entry: &&EntryHandle| entry.core().id == client;
        let mut inner = Few::<Inside>::new();
        for outer in entries(scope).filter(of_client).map(EntryHandle::inside) {
            let is_same = |inner: &Inside| (inner.owner, inner.token) == (outer.owner, outer.token);
            if !inner.iter().any(is_same) {
                inner.push(outer);
            }
        }
        inner
    })
}

/// Returns the locks that the current call is inside, outermost first, each once.
pub(crate) fn holds() -> Vec<EntryHandle> {
    let locks = innermost().map(|link| link.locks()).unwrap_or_default();
    let locks = locks.into_iter().rev().flatten();
    locks.filter(EntryHandle::is_live).collect()
}

/// Returns the entries of a scope, innermost link first.
fn entries(scope: &Scope) -> impl Iterator<Item = &EntryHandle> {
    let links = successors(scope.chain.as_deref(), |link| link.outer.as_deref());
    links.flat_map(|link| &link.entries)
}

/// Returns the innermost call or guard that the current call is inside, with its locks.
pub(crate) fn innermost() -> Option<Arc<ChainLink>> {
    read(|scope| scope.chain.clone())
}
