//! The stores under comparison.

use super::{KEYS, Operation, operation::CLIENTS};
use crate::{
    server::Server,
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
#[derive(Debug)]
pub(super) struct ModelSubject(Server);

impl ModelSubject {
    pub(super) fn new() -> Self {
        let mut server = Server::new(1_000_000);
        (0..CLIENTS).for_each(|client| server.join(client));
        Self(server)
    }

    pub(super) fn apply(&mut self, operation: &Operation) -> Observed {
        let server = &mut self.0;
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
            Operation::Leave(client) => server.leave(*client),
            Operation::Restart => server.restart(),
            Operation::LoseFence(_) => server.forget_fence(),
        }
        let view = |key| KeyView {
            entry: server.inspect(key),
            queue: server.queue(key),
        };
        Observed {
            reply,
            notifications: effects.notifications,
            keys: (0..KEYS).map(view).collect(),
        }
    }
}
