//! A client of the model: the machine that ships, its callers, and its outstanding requests.

use super::{
    Config, Time,
    config::{Caller, TOKENS, duration},
    network::Id,
};
use crate::{
    key,
    lost::LostCause,
    machine::{
        CallId, Entry, Input, Machine, Output, Owner, Ownership, Phase, Renew, Request, Settings,
        Slot,
    },
    mode::LockMode,
    server,
    wait::Spread,
};

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(super) name: u8,
    pub(super) life: Life,
    pub(super) machine: Machine,
    pub(super) tasks: Vec<Task>,
    pub(super) awaited: Vec<Awaited>,
    next_id: Id,
    /// The history of each owner of the machine.
    pub(super) owners: Vec<Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Life {
    Open,
    Draining,
    Closed,
    /// It has shut down or died.
    Ended,
}

/// A caller's progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Task {
    /// The number of its present call.
    pub(super) call: CallId,
    pub(super) stage: Stage,
    /// Its entries, the outermost first, and the tokens of their holds.
    pub(super) entries: Vec<(Entry, u64)>,
    /// When the hold began.
    pub(super) began: Time,
    /// The number of its nested calls.
    pub(super) nested: u8,
    pub(super) wrote: bool,
    /// Whether it has downgraded its lock.
    pub(super) is_downgraded: bool,
    /// Whether another owner had the lock before its release was sent.
    pub(super) was_overtaken: bool,
    /// The time by which the current call must be served or refused.
    pub(super) deadline: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    ToCome,
    /// Acquires the outermost lock, a nested one, or leaves.
    Calling(Work, Ready),
    Holding,
    /// Its call is not polled any more.
    Unpolled,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    Acquire,
    Enter,
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ready {
    /// The executor polls it next.
    Woken,
    Waiting,
    /// It waits for the reply to its request.
    Sending,
}

/// A request whose reply is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Awaited {
    pub(super) id: Id,
    pub(super) sent: Time,
    /// The call whose future awaits the reply; `None` for the background.
    pub(super) by: Option<CallId>,
    pub(super) what: Asked,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Request(Box<Request>),
    Renewal(Box<Renew>),
}

/// The history of an owner, which the properties check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Known {
    owner: Owner,
    pub(super) lost: Option<LostCause>,
    pub(super) is_released: bool,
    /// When the server granted its lock to another owner.
    pub(super) overtaken: Option<Time>,
    /// The number of local hand-overs while other clients were known to wait.
    pub(super) handed_over: usize,
}

impl Client {
    pub(super) fn new(name: u8, callers: &[Caller], counts_entries: bool) -> Self {
        let settings = Settings {
            response_timeout: duration(2),
            local_handovers: Config::LOCAL_HANDOVERS,
            counts_entries,
            replicas: false,
            needs_majority: false,
            // Servers of the model keep fences.
            fence_retention: duration(1 << 32),
            tokens: TOKENS,
        };
        let task = |caller: usize| Task {
            call: CallId(8 * caller as u64 + 1),
            stage: Stage::ToCome,
            entries: Vec::new(),
            began: 0,
            nested: 0,
            wrote: false,
            is_downgraded: false,
            was_overtaken: false,
            deadline: Time::MAX,
        };
        Self {
            name,
            life: Life::Open,
            machine: Machine::new(settings, Spread(0)),
            tasks: (0..callers.len()).map(task).collect(),
            awaited: Vec::new(),
            next_id: 0,
            owners: Vec::new(),
        }
    }

    /// Stops the client and forgets its state.
    pub(super) fn die(&mut self) {
        let dead = Self::new(self.name, &[], true);
        *self = Self {
            life: Life::Ended,
            ..dead
        };
    }

    /// Awaits the reply to a request, and returns its number.
    pub(super) fn awaits(&mut self, what: Asked, by: Option<CallId>, sent: Time) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        self.awaited.push(Awaited { id, sent, by, what });
        id
    }

    pub(super) fn take_awaited(&mut self, id: Id) -> Option<Awaited> {
        let at = self.awaited.iter().position(|one| one.id == id)?;
        Some(self.awaited.remove(at))
    }

    /// Returns whether the reply is still read: by the background, or by a call that is still polled.
    pub(super) fn reads(&self, id: Id) -> bool {
        let awaited = self.awaited.iter().find(|one| one.id == id);
        let call = awaited.and_then(|one| one.by);
        let is_unpolled = |call| {
            let mut tasks = self.tasks.iter();
            tasks.any(|task| task.call == call && task.stage == Stage::Unpolled)
        };
        awaited.is_some() && !call.is_some_and(is_unpolled)
    }

    /// Returns the caller whose call awaits a reply.
    pub(super) fn polled(&self, awaited: &Awaited) -> Option<usize> {
        let call = awaited.by?;
        self.tasks.iter().position(|task| task.call == call)
    }

    /// Applies an input to the machine.
    pub(super) fn on(&mut self, input: Input, now: Time) -> Vec<Output> {
        self.machine.on(input, super::config::time(now)).collect()
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        let due = self.machine.due();
        self.life < Life::Ended && due.is_some_and(|due| due <= super::config::time(now))
    }

    pub(super) fn known(&mut self, owner: Owner) -> &mut Known {
        let at = self.owners.iter().position(|known| known.owner == owner);
        let at = at.unwrap_or_else(|| {
            self.owners.push(Known {
                owner,
                lost: None,
                is_released: false,
                overtaken: None,
                handed_over: 0,
            });
            self.owners.len() - 1
        });
        &mut self.owners[at]
    }

    pub(super) fn is_overtaken(&self, owner: Owner) -> Option<Time> {
        let known = self.owners.iter().find(|known| known.owner == owner);
        known.and_then(|known| known.overtaken)
    }

    /// Forgets owners that the machine has forgotten.
    pub(super) fn forget(&mut self) {
        let machine = &self.machine;
        self.owners
            .retain(|known| machine.ownerships().any(|own| own.owner == known.owner));
    }

    /// Returns the ownerships of a key that the client relies on, with or without a hold.
    pub(super) fn relies_on(&self, key: u8, now: Time) -> impl Iterator<Item = &Ownership> {
        let slot = self.machine.slot(&server::key(key));
        let owns = slot.into_iter().flat_map(Slot::ownerships);
        let left = move |own: &Ownership| own.rest(super::config::time(now));
        owns.filter(move |own| own.is_owned() && !left(own).is_zero())
    }

    /// Returns the owners whose lease has not ended.
    pub(super) fn valid(&self, now: Time) -> Vec<Owner> {
        let now = super::config::time(now);
        let owns = self.machine.ownerships();
        let valid = owns.filter(|own| !own.rest(now).is_zero());
        valid.map(|own| own.owner).collect()
    }

    /// Returns an ownership of a key that has a valid hold.
    pub(super) fn holds(&self, key: u8, now: Time) -> Option<&Ownership> {
        let is_valid = |own: &Ownership| own.valid_until(super::config::time(now)).is_ok();
        let mut owns = self.relies_on(key, now);
        owns.find(|own| own.phase() == Phase::Held && is_valid(own))
    }

    /// Returns whether calls of the client share a lock with another owner than this one.
    pub(super) fn shares(&self, key: &key::Key, owner: Owner) -> bool {
        let slot = self.machine.slot(key);
        let mut owns = slot.into_iter().flat_map(Slot::ownerships);
        owns.any(|own| {
            own.owner != owner && own.phase() == Phase::Held && own.mode != LockMode::Exclusive
        })
    }

    /// Returns whether a caller is in a valid hold of a key, as its guard reads it.
    pub(super) fn is_inside(&self, task: &Task, key: u8, now: Time) -> bool {
        let (key, now) = (server::key(key), super::config::time(now));
        let is_valid = |(entry, token): &(Entry, u64)| {
            let own = self.machine.own(&entry.key, entry.owner);
            let own = own.filter(|own| own.is_live(*token) && own.has(entry.number));
            own.is_some_and(|own| own.valid_until(now).is_ok())
        };
        let mut entries = task.entries.iter();
        entries.any(|entry| entry.0.key == key && is_valid(entry))
    }

    /// Returns whether a hold has ended by the clock, and is not marked as lost yet.
    pub(super) fn believes(&self, now: Time) -> bool {
        let now = super::config::time(now);
        let ends = |own: &Ownership| own.lost().is_none() && own.valid_until(now).is_err();
        let mut owns = self.machine.ownerships();
        owns.any(|own| own.phase() == Phase::Held && ends(own))
    }

    /// Returns whether no caller is in a call or a hold.
    pub(super) fn has_no_call(&self) -> bool {
        let is_idle = |task: &Task| matches!(task.stage, Stage::ToCome | Stage::Gone);
        self.tasks.iter().all(is_idle)
    }

    /// Returns whether the client has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.has_no_call() && self.machine.slots().next().is_none()
    }
}
