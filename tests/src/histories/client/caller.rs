//! Makes the calls of a history, and records what they observe.

use std::sync::atomic::{AtomicU64, Ordering};

use rlock_core::{Hold, LockError, LockGuard, LockMode};

use super::terms::Terms;
use crate::histories::{
    clock,
    record::{AccessKind, Fault, FaultKind, Operation, Outcome, Record, Verb, hold_name},
    resource::Resource,
    text,
};

/// Prints a record in one write, so that a killed process prints no partial record but the last.
pub(super) fn print(record: &Record) {
    println!("{}", text::write(record));
}

/// What a call asks for, and when it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) verb: Verb,
    pub(super) key: &'a str,
    pub(super) terms: &'a Terms,
    pub(super) invoke: u64,
}

impl<'a> Ask<'a> {
    /// A call that begins now.
    pub(super) fn now(verb: Verb, key: &'a str, terms: &'a Terms) -> Self {
        let invoke = clock::now();
        Self {
            verb,
            key,
            terms,
            invoke,
        }
    }
}

/// A task with its access to the resource.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) process: u32,
    pub(super) resource: Resource,
}

impl Caller {
    pub(super) fn operation(&self, ask: Ask<'_>) -> Operation {
        let Ask {
            verb,
            key,
            terms,
            invoke,
        } = ask;
        Operation {
            process: self.process,
            verb,
            key: key.to_owned(),
            mode: terms.mode,
            owner: None,
            token: None,
            lease: clock::nanos(terms.lease),
            min_hold: terms.min_hold.map(clock::nanos),
            retain: Some(clock::nanos(terms.retain)),
            invoke,
            returned: clock::now(),
            valid_until: None,
            outcome: Outcome::Taken,
            error: None,
        }
    }

    /// Records a call that ended without a lock: with an error, or because another owner had the lock.
    pub(super) fn failed(&self, ask: Ask<'_>, error: Option<&LockError>) {
        let outcome = error.map_or(Outcome::Taken, outcome_of);
        if matches!(error, Some(LockError::Taken { .. })) {
            self.fault(FaultKind::WaitTimedOut, ask.invoke);
        }
        let refused = error.filter(|_| outcome == Outcome::Refused);
        print(&Record::Operation(Operation {
            outcome,
            error: refused.map(|error| format!("{error:#}")),
            ..self.operation(ask)
        }));
    }

    /// Records a call that ended without an entry, or a body that ended.
    pub(super) fn ended(&self, ask: Ask<'_>, outcome: Outcome) {
        print(&Record::Operation(Operation {
            outcome,
            ..self.operation(ask)
        }));
    }

    /// Records a call that its caller dropped.
    pub(super) fn cancelled(&self, ask: Ask<'_>) {
        self.fault(FaultKind::AcquireCancelled, ask.invoke);
        self.ended(ask, Outcome::Cancelled);
    }

    /// Records a fault of this process.
    pub(super) fn fault(&self, kind: FaultKind, start: u64) {
        print(&Record::Fault(Fault {
            process: Some(self.process),
            ..Fault::new(kind, start, clock::now())
        }));
    }
}

pub(super) fn outcome_of(error: &LockError) -> Outcome {
    match error {
        LockError::Taken { .. } => Outcome::Taken,
        LockError::Lost { .. } => Outcome::Lost,
        LockError::Unavailable { .. } => Outcome::Unavailable,
        LockError::Closed { .. } => Outcome::Closed,
        _ => Outcome::Refused,
    }
}

/// Returns the name of a hold.
fn name_of(held: &Hold) -> String {
    hold_name(&held.owner(), held.token())
}

/// Returns the current time and the end of the validity; `None` if the hold is not valid.
///
/// The time is read first: a process that is paused in between then records an end that is too
/// early, never too late.
fn look(held: &Hold) -> (u64, Option<u64>) {
    let at = clock::now();
    let left = clock::nanos(held.valid_for());
    (at, (left > 0).then(|| at + left))
}

/// The number of readers of this process so far.
static READERS: AtomicU64 = AtomicU64::new(0);

/// An owner inside its lock. Dropping it records the exit.
#[derive(Debug)]
pub(super) struct Inside {
    key: String,
    owner: String,
    /// The end of the owner's name, which tells apart the readers of a client.
    reader: String,
    pub(super) mode: LockMode,
    token: u64,
    valid_until: u64,
}

impl Inside {
    pub(super) fn enter(caller: &Caller, held: &Hold, ask: Ask<'_>) -> Self {
        let (at, valid_until) = look(held);
        let reader = match ask.terms.mode {
            LockMode::Shared => format!("/{}", READERS.fetch_add(1, Ordering::Relaxed)),
            _ => String::new(),
        };
        let (key, owner) = (held.key().to_owned(), name_of(held) + &reader);
        print(&Record::Operation(Operation {
            owner: Some(owner.clone()),
            token: Some(held.token().as_u64()),
            returned: at,
            valid_until,
            outcome: Outcome::Granted,
            ..caller.operation(Ask { key: &key, ..ask })
        }));
        Self {
            key,
            owner,
            reader,
            mode: ask.terms.mode,
            token: held.token().as_u64(),
            valid_until: valid_until.unwrap_or(at),
        }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the name of the hold that a nested entry is in.
    pub(super) fn name_of(&self, nested: &LockGuard) -> String {
        name_of(nested) + &self.reader
    }

    /// Writes to the resource, or reads if another holder may be inside, too.
    pub(super) async fn access(&self, caller: &Caller) {
        let kind = match self.mode {
            LockMode::Exclusive => AccessKind::Write,
            _ => AccessKind::Read,
        };
        let resource = &caller.resource;
        resource
            .access(kind, &self.key, &self.owner, self.token)
            .await;
    }

    /// Downgrades the lock of this guard.
    pub(super) fn downgrade(&mut self, guard: &LockGuard) -> Result<(), LockError> {
        // Recorded first: afterwards, a process that is killed could not report that other holders may be inside.
        print(&Record::Downgraded {
            key: self.key.clone(),
            owner: self.owner.clone(),
            at: clock::now(),
        });
        self.mode = LockMode::Shared;
        guard.downgrade()
    }

    /// Checks whether the hold is valid, and records a change.
    pub(super) fn look(&mut self, held: &Hold) -> bool {
        const NEWS: u64 = 1_000_000;
        let (at, valid_until) = look(held);
        if valid_until.is_none_or(|until| until > self.valid_until + NEWS) {
            self.valid_until = valid_until.unwrap_or(u64::MAX / 2);
            print(&Record::Looked {
                key: self.key.clone(),
                owner: self.owner.clone(),
                at,
                valid_until,
            });
        }
        valid_until.is_some()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        print(&Record::Left {
            key: self.key.clone(),
            owner: self.owner.clone(),
            at: clock::now(),
        });
    }
}
