//! The chain of locks that the current call stack is inside. Each thread has the scope of the
//! future that it polls, or of the call that it runs.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    iter::successors,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use uuid::Uuid;

use crate::{
    client::LockClient, error::LostCause, hold::Hold, owner::OwnerId, sync::thread_local,
    view::View,
};

thread_local! {
    static SCOPE: RefCell<Scope> = RefCell::default();
}

/// What a call inherits from its callers: the default client and the locks they are inside.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    client: Option<LockClient>,
    chain: Option<Arc<Link>>,
}

/// One lock of the chain. Links are never changed, so branches of a `join!` cannot see each
/// other's.
struct Link {
    view: View,
    outer: Option<Arc<Link>>,
}

impl Scope {
    pub(crate) fn current() -> Self {
        read(Clone::clone)
    }

    pub(crate) fn with_client(self, client: LockClient) -> Self {
        Self {
            client: Some(client),
            ..self
        }
    }

    pub(crate) fn inside(self, view: View) -> Self {
        let link = Link {
            view,
            outer: self.chain,
        };
        Self {
            client: self.client,
            chain: Some(Arc::new(link)),
        }
    }

    /// The future's polls and destructors see this scope; other futures do not.
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

/// The client that the innermost `LockClient::scope` set.
pub(crate) fn client() -> Option<LockClient> {
    read(|scope| scope.client.clone())
}

/// The hold of `key` by `client` that the current call is inside of.
pub(crate) fn hold_of(client: Uuid, key: &str) -> Option<Arc<Hold>> {
    read(|scope| {
        let mut link = scope.chain.as_ref();
        while let Some(inner) = link {
            let hold = &inner.view.hold;
            if hold.key.as_str() == key && hold.owner.is_of(client) {
                return Some(Arc::clone(hold));
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
        let mut holds = links.map(|link| &link.view.hold);
        holds.any(|hold| hold.owner.is_of(client) && hold.enterable().is_some())
    };
    read(is_inside)
}

/// Carries the current chain of locks into another task.
///
/// A spawned task is not inside the locks of the one that spawned it: both run at once, so a lock
/// that both were inside would protect neither from the other. Where the spawning body waits for
/// the task, this says so on purpose.
pub trait InCurrentScope: Future + Sized {
    /// The same future, inside the locks that the caller is inside.
    ///
    /// A nested acquire there re-enters for as long as the hold lasts; after that it asks for the
    /// lock afresh.
    /// [`current`] returns the caller's hold, which becomes invalid when the caller's own call
    /// ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{InCurrentScope, LockClient};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("order:42");
    /// lock.run(async {
    ///     let nested = client.lock("order:42");
    ///     let child = async move { nested.run(async { "inside twice" }).await };
    ///     tokio::spawn(child.in_current_scope()).await.expect("no panic")
    /// })
    /// .await??;
    /// # Ok(())
    /// # }
    /// ```
    fn in_current_scope(self) -> impl Future<Output = Self::Output>;
}

impl<F: Future> InCurrentScope for F {
    fn in_current_scope(self) -> impl Future<Output = F::Output> {
        Scope::current().around(self)
    }
}

/// The innermost hold that the current call is inside of; `None` outside any body.
///
/// # Examples
///
/// ```
/// use rlock_core::LockClient;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rlock_core::LockError> {
/// let client = LockClient::in_memory();
/// let lock = client.lock("order:42");
/// let body = async {
///     let hold = rlock_core::current().expect("inside a lock");
///     assert_eq!(hold.key(), "order:42");
///     hold.fencing_token() // hand it to the storage along with the write
/// };
/// assert!(lock.run(body).await? > 0);
/// assert!(rlock_core::current().is_none());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn current() -> Option<CurrentHold> {
    read(|scope| scope.chain.clone()).map(CurrentHold)
}

/// The hold that a body runs in, as [`current`] finds it.
///
/// A handle can outlive the body, and can be sent to another task. It follows the call or guard
/// that it was obtained in. When that call or guard ends or starts its release,
/// [`is_valid`](Self::is_valid) returns `false` and [`lost`](Self::lost) resolves. This holds even
/// if an outer call still holds the key.
#[derive(Clone)]
pub struct CurrentHold(Arc<Link>);

impl CurrentHold {
    /// The key that is locked.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.view.hold.key.as_str()
    }

    /// The owner that holds it.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.0.view.hold.owner
    }

    /// The fencing token: larger than that of every earlier hold of this key. Storage that
    /// refuses tokens below the largest it has seen refuses writers that lost the lock.
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.0.view.hold.token()
    }

    /// How many nested entries the hold has now.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.view.hold.count()
    }

    /// Returns how long the hold remains valid without renewal. Returns zero once the hold is
    /// invalid or its call has ended.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        match self.0.view.left() {
            Some(_) => Duration::ZERO,
            None => self.0.view.valid_for(),
        }
    }

    /// Whether the hold may be relied on now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Resolves to the cause when the hold is lost. Resolves to [`LostCause::Released`] when the
    /// hold is released.
    ///
    /// The first event counts: a hold that was lost before its release resolves to the cause of the
    /// loss.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect. If the hold has ended meanwhile, a later call resolves at
    /// once.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// use rlock_core::{LockClient, LostCause, current};
    ///
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("order:42");
    /// let hold = lock.run(async { current().expect("inside") }).await?;
    /// assert!(!hold.is_valid());
    /// assert_eq!(hold.lost().await, LostCause::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> LostCause {
        tokio::select! {
            biased;
            cause = self.0.view.until_left() => cause,
            cause = self.0.view.lost() => cause,
        }
    }
}

impl std::fmt::Debug for CurrentHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CurrentHold")
            .field("key", &self.key())
            .field("owner", &self.owner())
            .field("fencing_token", &self.fencing_token())
            .finish_non_exhaustive()
    }
}
