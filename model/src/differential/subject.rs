//! Executes operations on one of the stores under comparison.

use std::time::Duration;

use super::{KEYS, Operation, operation::CLIENTS};
use crate::{
    owner::OwnerId,
    requests::{Answer, Body},
    server::{Server, key},
    store::{Acquired, Applied, Notification, RenewalOutcome, StoredLock},
};

/// A store under comparison.
pub trait Subject {
    /// Restarts without data. Every client is connected.
    fn reset(&mut self);

    /// Returns whether it is a member of a quorum.
    fn is_member(&self) -> bool;

    /// Returns whether it can be a member of a quorum, and so restores locks.
    fn restores(&self) -> bool {
        true
    }

    /// Returns whether it refuses late acquires of a released owner. In Postgres there are none.
    fn refuses_late_acquires(&self) -> bool {
        true
    }

    /// Executes an operation, whose fences are absolute.
    fn apply(&mut self, operation: &Operation) -> Observed;
}

/// The observations of a step.
#[derive(Debug)]
pub struct Observed {
    /// The reply.
    pub reply: Reply,
    /// The notifications.
    pub notifications: Vec<Notification>,
    /// Each key after the step.
    pub keys: Vec<KeyView>,
}

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// To an acquire.
    Acquired(Acquired),
    /// To a request that changes what an owner has.
    Applied(Applied),
    /// To renewals.
    Renewed(Vec<RenewalOutcome>),
    /// Whether each lock was restored.
    Restored(Vec<bool>),
    /// No request was sent.
    None,
}

impl Reply {
    pub(super) fn is_grant(&self) -> bool {
        matches!(self, Self::Acquired(Acquired::Granted { .. }))
    }

    pub(super) fn has_new_fence(&self) -> bool {
        let is_new = |one: &_| matches!(one, RenewalOutcome::Held { fence: 1.., .. });
        matches!(self, Self::Renewed(renewed) if renewed.iter().any(is_new))
    }

    pub(super) fn is_taken(&self) -> bool {
        matches!(self, Self::Acquired(Acquired::Taken { .. }))
    }
}

/// A key as the store sees it.
#[derive(Debug)]
pub struct KeyView {
    /// The holders of the lock.
    pub entry: Option<StoredLock>,
    /// Its wait queue.
    pub queue: Vec<OwnerId>,
}

/// The model's server under comparison.
pub(super) struct ModelSubject(Server);

impl ModelSubject {
    pub(super) fn new(is_member: bool) -> Self {
        let mut server = Server::new(Duration::from_secs(1_000).into(), is_member);
        (0..CLIENTS).for_each(|client| server.join(client));
        Self(server)
    }

    pub(super) fn apply(&mut self, operation: &Operation) -> Observed {
        let server = &mut self.0;
        let (mut reply, mut notifications) = (Reply::None, Vec::new());
        let mut execute = |body: &Body| {
            let (answer, notified) = server.execute(body);
            notifications.extend(notified);
            match answer {
                Answer::Acquired(acquired) => Reply::Acquired(acquired),
                Answer::Applied(applied) => Reply::Applied(applied),
                Answer::Renewed(renewed) => Reply::Renewed(renewed.kept),
                Answer::Restored(is_restored) => Reply::Restored(vec![is_restored]),
            }
        };
        match operation {
            Operation::Acquire(ask, floor) => reply = execute(&Body::Acquire(ask.clone(), *floor)),
            Operation::SetCount(ask) => reply = execute(&Body::SetCount(ask.clone())),
            Operation::Downgrade(ask, floor) => {
                reply = execute(&Body::Downgrade(ask.clone(), *floor));
            }
            Operation::Release(ask, floor) => reply = execute(&Body::Release(ask.clone(), *floor)),
            Operation::Renew(renewals, lease) => {
                let renew = |one: &_| match execute(&Body::Renew(Clone::clone(one), *lease)) {
                    Reply::Renewed(kept) => kept,
                    reply => unreachable!("{reply:?} to a renewal"),
                };
                reply = Reply::Renewed(renewals.iter().flat_map(renew).collect());
            }
            Operation::Restore(renewals, lease) => {
                let restore = |one: &_| match execute(&Body::Restore(Clone::clone(one), *lease)) {
                    Reply::Restored(restored) => restored,
                    reply => unreachable!("{reply:?} to a restore"),
                };
                reply = Reply::Restored(renewals.iter().flat_map(restore).collect());
            }
            Operation::Pass(time) => server.pass(*time),
            Operation::Leave(client) => server.leave(*client),
            Operation::Restart => server.restart(),
            Operation::LoseFence(_) => server.forget_fence(),
        }
        let view = |number| KeyView {
            entry: server.inspect(&key(number)),
            queue: server.queue(&key(number)).collect(),
        };
        Observed {
            reply,
            notifications,
            keys: (0..KEYS).map(view).collect(),
        }
    }
}
