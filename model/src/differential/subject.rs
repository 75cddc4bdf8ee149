//! The stores under comparison.

use super::{Design, KEYS, Operation, operation::CLIENTS};
use crate::{
    server::{Constants, Server, ServerBug},
    words::{Acquired, Effects, Entry, Notification, Owner, Released, Renewed},
};

/// A store under comparison.
pub trait Subject {
    /// Restarts without data. Every client is connected.
    fn reset(&mut self);

    /// Executes an operation, whose fences are absolute.
    fn apply(&mut self, operation: &Operation) -> Observed;
}

/// The observations of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The reply.
    pub reply: Reply,
    /// The notifications.
    pub notifications: Vec<Notification>,
    /// Each key after the step.
    pub keys: Vec<KeyView>,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To an acquire.
    Acquired(Acquired),
    /// To a release.
    Released(Released),
    /// To a renewal.
    Renewed(Vec<Renewed>),
    /// No request was sent.
    None,
}

impl Reply {
    pub(super) fn is_grant(&self) -> bool {
        matches!(self, Self::Acquired(Acquired::Granted { .. }))
    }

    pub(super) fn has_new_fence(&self) -> bool {
        matches!(self, Self::Renewed(renewed) if renewed.iter().any(|one| one.fence > 0))
    }

    pub(super) fn is_taken(&self) -> bool {
        matches!(self, Self::Acquired(Acquired::Taken { .. }))
    }
}

/// A key as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// The holder of the lock.
    pub entry: Option<Entry>,
    /// Its wait queue.
    pub queue: Vec<Owner>,
}

/// The model's server under comparison.
#[derive(Clone, Debug)]
pub struct ModelSubject {
    design: Design,
    bug: Option<ServerBug>,
    server: Server,
}

impl ModelSubject {
    /// Creates a server with the design of a store.
    #[must_use]
    pub fn new(design: Design) -> Self {
        let constants = Constants {
            queue: design.queue_ttl.unwrap_or(u64::MAX / 2),
            ..Constants::REAL
        };
        let mut server = Server::new(1_000_000, constants);
        (0..CLIENTS).for_each(|client| server.join(client));
        Self {
            design,
            bug: None,
            server,
        }
    }

    /// Adds a bug.
    #[must_use]
    pub fn with_bug(self, bug: ServerBug) -> Self {
        Self {
            bug: Some(bug),
            server: self.server.with_bug(Some(bug)),
            ..self
        }
    }

    /// Returns the state of each key.
    pub(super) fn view(&self) -> Vec<KeyView> {
        let view = |key| KeyView {
            entry: self.server.inspect(key),
            queue: self.server.queue(key),
        };
        (0..KEYS).map(view).collect()
    }
}

impl Subject for ModelSubject {
    fn reset(&mut self) {
        let new = Self::new(self.design);
        *self = match self.bug {
            Some(bug) => new.with_bug(bug),
            None => new,
        };
    }

    fn apply(&mut self, operation: &Operation) -> Observed {
        let server = &mut self.server;
        let mut effects = Effects::default();
        let mut reply = Reply::None;
        match operation {
            Operation::Acquire(ask) => {
                reply = Reply::Acquired(server.acquire(ask, &mut effects));
            }
            Operation::Release(ask) => {
                reply = Reply::Released(server.release(ask, &mut effects));
            }
            Operation::Renew(ask) => reply = Reply::Renewed(server.renew(ask, &mut effects)),
            Operation::Pass(time) => server.pass(*time),
            Operation::Leave(client) if self.design.forgets_departed => {
                server.leave_all_queues(*client);
            }
            Operation::Leave(client) => server.leave(*client),
            Operation::Restart => server.restart(),
            Operation::LoseFence(key) => server.lose_fence(*key),
            Operation::InvalidateFence(key, instead) => server.replace_fence(*key, *instead),
        }
        Observed {
            reply,
            notifications: effects.notifications,
            keys: self.view(),
        }
    }
}
