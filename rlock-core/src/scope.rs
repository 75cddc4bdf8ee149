//! The chain of locks that the current call stack is inside, carried by a task-local.

use std::{future::Future, sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{
    client::LockClient, error::LostCause, hold::Hold, owner::OwnerId, sync::task_local, view::View,
};

task_local! {
    static SCOPE: Scope;
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
        SCOPE.try_with(Clone::clone).unwrap_or_default()
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

    /// The future's own polls see this scope; those of others do not.
    pub(crate) fn around<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        SCOPE.scope(self, future)
    }

    pub(crate) fn around_call<T>(self, call: impl FnOnce() -> T) -> T {
        SCOPE.sync_scope(self, call)
    }
}

/// The client that the innermost `LockClient::scope` set.
pub(crate) fn client() -> Option<LockClient> {
    SCOPE.try_with(|scope| scope.client.clone()).ok().flatten()
}

/// The hold of `key` by `client` that the current call is inside of.
pub(crate) fn hold_of(client: Uuid, key: &str) -> Option<Arc<Hold>> {
    SCOPE
        .try_with(|scope| {
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
        .ok()
        .flatten()
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
    SCOPE
        .try_with(|scope| scope.chain.clone())
        .ok()
        .flatten()
        .map(CurrentHold)
}

/// The hold that a body runs in, as [`current`] finds it.
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

    /// How long the hold may be relied on if it is not renewed; zero once it may not.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.0.view.valid_for()
    }

    /// Whether the hold may be relied on now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Resolves when the hold is lost, with the cause; never otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future costs nothing; a later call resolves at once if the hold was lost
    /// meanwhile.
    pub async fn lost(&self) -> LostCause {
        self.0.view.lost().await
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
