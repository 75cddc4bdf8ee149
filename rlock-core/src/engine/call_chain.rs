//! The chain of locks that the current call is inside of. Each thread has the scope of the future that it polls, or of
//! the call that it runs.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    iter::successors,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use uuid::Uuid;

use crate::{
    engine::{driver::ClientHandle, entry::Entry, ownership::Ownership},
    sync::thread_local,
};

thread_local! {
    static SCOPE: RefCell<Scope> = RefCell::default();
}

/// The context that a call inherits from its callers: the default client, and the locks that they are inside of.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    client: Option<ClientHandle>,
    chain: Option<Arc<Link>>,
}

/// One lock of the chain. Links are immutable, so branches of a `join!` cannot see each other's
/// locks.
pub(crate) struct Link {
    pub(crate) entry: Entry,
    outer: Option<Arc<Link>>,
}

impl Scope {
    pub(crate) fn current() -> Self {
        read(Clone::clone)
    }

    pub(crate) fn with_client(self, client: ClientHandle) -> Self {
        Self {
            client: Some(client),
            ..self
        }
    }

    pub(crate) fn inside(self, entry: Entry) -> Self {
        let link = Link {
            entry,
            outer: self.chain,
        };
        Self {
            client: self.client,
            chain: Some(Arc::new(link)),
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
    pub(crate) fn enter(&mut self) -> Entered<'_> {
        self.swap();
        Entered(self)
    }

    /// Swaps this scope with the thread's. A thread that ends has none.
    pub(crate) fn swap(&mut self) {
        let _ = SCOPE.try_with(|present| mem::swap(&mut *present.borrow_mut(), self));
    }
}

/// A scope in use by the thread. Dropping it restores the previous scope.
pub(crate) struct Entered<'a>(&'a mut Scope);

impl Drop for Entered<'_> {
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
    SCOPE
        .try_with(|scope| read(&scope.borrow()))
        .unwrap_or_default()
}

/// Returns the client that the innermost `LockClient::scope` set.
pub(crate) fn client() -> Option<ClientHandle> {
    read(|scope| scope.client.clone())
}

/// Returns the ownership of `key` by `client` that the current call is inside of, and the token of its hold.
pub(crate) fn hold_of(client: Uuid, key: &str) -> Option<(Arc<Ownership>, u64)> {
    read(|scope| {
        let mut link = scope.chain.as_ref();
        while let Some(inner) = link {
            let ownership = &inner.entry.ownership;
            if ownership.key.as_str() == key && ownership.owner.is_of(client) {
                return Some((Arc::clone(ownership), inner.entry.token));
            }
            link = inner.outer.as_ref();
        }
        None
    })
}

/// Returns whether the current call is inside of a live hold of `client`.
pub(crate) fn is_inside_hold_of(client: Uuid) -> bool {
    let is_inside = |scope: &Scope| {
        let links = successors(scope.chain.as_ref(), |link| link.outer.as_ref());
        let mut entries = links.map(|link| &link.entry);
        entries.any(
            |Entry {
                 ownership, token, ..
             }| {
                ownership.owner.is_of(client) && ownership.enterable(*token).is_some()
            },
        )
    };
    read(is_inside)
}

/// Returns the innermost lock that the current call is inside of.
pub(crate) fn innermost() -> Option<Arc<Link>> {
    read(|scope| scope.chain.clone())
}
