//! `StoreError`: why a request to a store failed, and whether it may have been executed.

use std::{error::Error, iter::successors, sync::Arc, time::Duration};

use rlock_proto::{few::Few, key::Key};

use crate::{error::LockError, wording::shown};

/// A request that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{source}")]
pub(crate) struct StoreError {
    /// Whether the same request may succeed later.
    pub(crate) transient: bool,
    /// Whether the request may have been executed nevertheless.
    pub(crate) maybe_executed: bool,
    /// Whether a server replied that it refuses the request.
    pub(crate) is_refusal: bool,
    /// The claims of an acquire that other masters of a cluster have granted.
    pub(crate) granted: Few<usize>,
    pub(crate) source: Arc<dyn Error + Send + Sync>,
}

impl StoreError {
    pub(crate) fn new(
        transient: bool,
        maybe_executed: bool,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            transient,
            maybe_executed,
            is_refusal: false,
            granted: Few::new(),
            source: source.into().into(),
        }
    }

    pub(super) fn ambiguous(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(true, true, source)
    }

    pub(crate) fn no_reply(after: Duration) -> Self {
        Self::ambiguous(format!("no reply within {}", shown(after)))
    }

    /// Too few servers of a quorum replied.
    pub(crate) fn no_majority() -> Self {
        Self::ambiguous("too few servers of the quorum replied")
    }

    /// The client was shut down before all locks were released.
    pub(crate) fn not_released() -> Self {
        Self::ambiguous(
            "not every release was confirmed in time; the locks that are left end with their leases",
        )
    }

    /// The request was not sent: other requests for the same ownership were in flight, or the call was not polled.
    pub(crate) fn busy() -> Self {
        let source = "another call of this client changed the same lock, or the call was polled after its wait";
        Self::new(true, false, source)
    }

    /// Each time, several callers had the lock on some servers of a quorum, and none on a majority.
    pub(crate) fn split() -> Self {
        let source = "several callers each had the lock on some of the servers, and none on a majority; try again, or \
                      allow a `wait`";
        Self::new(true, false, source)
    }

    /// This kind of store cannot wait for replicas.
    pub(crate) fn no_replicas() -> Self {
        let source = "`wait_for_replicas` is for one server, for the master that Sentinels know, or for a Redis Cluster";
        Self::new(false, false, source)
    }

    /// Only the embedded store can do this for a test.
    #[cfg(feature = "testing")]
    pub(crate) fn not_embedded(way_out: &str) -> Self {
        let source = format!("only the embedded store can simulate this; {way_out}");
        Self::new(false, false, source)
    }

    /// The embedded store is down, because a test asked for it.
    pub(super) fn simulated_outage() -> Self {
        Self::new(true, false, "the embedded store simulates an outage")
    }

    /// The owner of a lock was not written by a client.
    pub(crate) fn foreign_owner(owner: &str) -> Self {
        let owner: String = owner.chars().take(80).collect();
        let owner = rlock_proto::escape_control::escape_control(&owner);
        let source =
            format!("its owner `{owner}` was not written by rlock; delete the key on the server");
        Self::new(false, false, source)
    }

    /// A key of another type has the name of the lock.
    pub(crate) fn not_a_lock() -> Self {
        let source = "other software wrote its key, which is not a hash (WRONGTYPE); delete the key on the server";
        Self::new(false, false, source)
    }

    /// Adds where the store is.
    pub(crate) fn at(mut self, place: String) -> Self {
        #[derive(Debug, thiserror::Error)]
        #[error("{place}: {source}")]
        struct At {
            place: String,
            source: Arc<dyn Error + Send + Sync>,
        }

        let source = self.source;
        self.source = Arc::new(At { place, source });
        self
    }

    /// Replaces the words of a refusal, and keeps its kind.
    pub(super) fn reworded(self, words: String) -> Self {
        Self {
            source: Arc::<dyn Error + Send + Sync>::from(Box::from(words)),
            ..self
        }
    }

    /// Marks a request as one that an earlier attempt may have executed.
    pub(super) fn or_executed(self, before: bool) -> Self {
        Self {
            maybe_executed: self.maybe_executed || before,
            ..self
        }
    }

    /// Marks a request as one that was not executed.
    pub(super) fn not_executed(self) -> Self {
        Self {
            maybe_executed: false,
            ..self
        }
    }

    /// Removes hidden keys from the text: a server may name them.
    pub(crate) fn hide<'k>(self, keys: impl IntoIterator<Item = &'k Key>) -> Self {
        let mut hidden = keys.into_iter().filter(|key| key.is_hidden()).peekable();
        if hidden.peek().is_none() {
            return self;
        }
        let first: &(dyn Error + 'static) = &*self.source;
        let chain: Vec<String> = successors(Some(first), |error| (*error).source())
            .map(ToString::to_string)
            .collect();
        let text = chain.join(": ");
        let shown = hidden.fold(text.clone(), |text, key| {
            text.replace(key.as_str(), &key.to_string())
        });
        if shown == text {
            self
        } else {
            self.reworded(shown)
        }
    }

    pub(crate) fn into_lock_error(self, action: String, waited: Duration) -> LockError {
        let source = self.source;
        if self.transient {
            LockError::Unavailable {
                action,
                waited,
                source,
            }
        } else {
            LockError::Refused { action, source }
        }
    }
}
