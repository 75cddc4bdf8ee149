//! The data for the checks, reduced because a long run has millions of records.

use std::collections::{BTreeMap, HashMap};

use rlock_core::LockMode;

use super::{
    record::{
        Access, Fault, FaultKind, Operation, Outcome, Record, Run, Sighting, Verb, client_of,
        owner_of, ownership_of,
    },
    text::Reader,
};

/// The grace period of a server for a waiter that has not confirmed its wait.
pub(super) const GRACE: u64 = 1_000_000_000;

/// One hold of one lock, as its process saw it.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) owner: String,
    pub(super) process: u32,
    pub(super) mode: LockMode,
    pub(super) token: u64,
    /// The longest lease that it requested.
    pub(super) lease: u64,
    pub(super) kept_for: Option<u64>,
    /// How long its client retains the lock after it.
    pub(super) retain: u64,
    pub(super) invoke: u64,
    /// The call that the store granted the lock. That of a reader may be an earlier call of its client.
    pub(super) asked: u64,
    pub(super) granted: u64,
    /// The earliest time of its grant.
    pub(super) earliest: u64,
    /// The ends of its validity, at the grant and at later checks.
    pub(super) first_valid_until: u64,
    pub(super) valid_until: u64,
    /// The longest remaining validity, at the grant or a later check.
    pub(super) valid_for: u64,
    /// The first time when it was known to have ended: left, or not valid.
    pub(super) ended: Option<u64>,
    /// When it became a shared hold.
    pub(super) downgraded: Option<u64>,
    pub(super) left: Option<u64>,
    /// Whether the store confirmed its release without a loss.
    pub(super) released: bool,
    /// Whether it has a body, which its client stops before the release.
    pub(super) in_body: bool,
}

impl Hold {
    /// Returns whether it began as a shared hold, or became one.
    pub(super) fn is_reader(&self) -> bool {
        self.mode == LockMode::Shared || self.downgraded.is_some()
    }

    /// Returns the mode at its end.
    pub(super) fn last_mode(&self) -> LockMode {
        if self.is_reader() {
            LockMode::Shared
        } else {
            self.mode
        }
    }

    /// Returns whether both may be the same hold to the store: readers of one client.
    pub(super) fn may_share(&self, other: &Self) -> bool {
        let is_same = ownership_of(&self.owner) == ownership_of(&other.owner);
        self.is_reader() && other.is_reader() && is_same
    }
}

/// A granted nested entry.
#[derive(Clone, Debug)]
pub(super) struct Nested {
    pub(super) owner: String,
    pub(super) mode: LockMode,
    pub(super) called: u64,
    pub(super) token: u64,
}

/// A call that ended without the lock.
#[derive(Clone, Debug)]
pub(super) struct GivenUp {
    pub(super) process: u32,
    pub(super) lease: u64,
    pub(super) at: u64,
}

/// All events of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Lock {
    pub(super) holds: Vec<Hold>,
    pub(super) given_up: Vec<GivenUp>,
    by_name: HashMap<String, usize>,
    by_ownership: HashMap<String, Vec<usize>>,
    pub(super) nested: Vec<Nested>,
    /// In the order of the resource.
    pub(super) accesses: Vec<Access>,
    pub(super) sightings: Vec<Sighting>,
}

/// The name of a hold, whether or not it is shared by now.
fn name_of(hold: &str) -> String {
    let number = hold.strip_prefix(owner_of(hold)).unwrap_or_default();
    format!("{}{number}", ownership_of(hold))
}

impl Lock {
    pub(super) fn hold(&self, name: &str) -> Option<&Hold> {
        self.by_name.get(&name_of(name)).map(|at| &self.holds[*at])
    }

    fn hold_mut(&mut self, name: &str) -> Option<&mut Hold> {
        self.by_name
            .get(&name_of(name))
            .map(|at| &mut self.holds[*at])
    }

    /// Returns all holds of this owner, in turn or together.
    pub(super) fn holds_of(&self, owner: &str) -> impl Iterator<Item = &Hold> {
        let all = self.by_ownership.get(ownership_of(owner));
        all.into_iter().flatten().map(|at| &self.holds[*at])
    }

    fn add(&mut self, mut hold: Hold) {
        let with_same_token = self
            .holds_of(&hold.owner)
            .filter(|other| other.token == hold.token);
        let asked = with_same_token.map(|other| other.asked).min();
        hold.asked = asked.map_or(hold.asked, |asked| asked.min(hold.asked));
        let at = self.holds.len();
        let ownership = ownership_of(&hold.owner).to_owned();
        self.by_ownership.entry(ownership).or_default().push(at);
        self.by_name.insert(name_of(&hold.owner), at);
        self.holds.push(hold);
    }
}

/// All data for the checks.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) run: Option<Run>,
    pub(super) locks: BTreeMap<String, Lock>,
    pub(super) faults: Vec<Fault>,
    pub(super) operations: BTreeMap<(Verb, Outcome), u64>,
    /// The time of each process's kill.
    pub(super) killed: HashMap<u32, u64>,
    /// The time of each client's death, with its process or alone.
    pub(super) dead: HashMap<String, u64>,
    /// The time of each client's shutdown.
    closed: HashMap<String, u64>,
    /// The process of each client.
    clients: HashMap<String, u32>,
    /// Errors that no fault explains.
    pub(super) refusals: Vec<String>,
    pub(super) leftovers: Vec<String>,
}

impl History {
    /// Reads the records of a run.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let (mut history, mut reader) = (Self::default(), Reader::default());
        for line in text.lines() {
            reader
                .read(line)?
                .into_iter()
                .for_each(|record| history.add(record));
        }
        Ok(history)
    }

    fn lock(&mut self, key: String) -> &mut Lock {
        self.locks.entry(key).or_default()
    }

    pub(super) fn add(&mut self, record: Record) {
        match record {
            Record::Run(run) => self.run = Some(run),
            Record::Started { process, client } => drop(self.clients.insert(client, process)),
            Record::Killed { process, at } => {
                self.killed.insert(process, at);
                let died = self.clients.iter().filter(|(_, own)| **own == process);
                let died: Vec<String> = died.map(|(client, _)| client.clone()).collect();
                self.dead
                    .extend(died.into_iter().map(|client| (client, at)));
            }
            Record::Ended { client, at } => drop(self.dead.insert(client, at)),
            Record::Closed { client, at } => drop(self.closed.insert(client, at)),
            Record::Operation(operation) => self.operation(operation),
            Record::Looked {
                key,
                owner,
                at,
                valid_until,
            } => {
                if let Some(hold) = self.lock(key).hold_mut(&owner) {
                    match valid_until {
                        Some(until) => {
                            hold.valid_until = hold.valid_until.max(until);
                            hold.valid_for = hold.valid_for.max(until.saturating_sub(at));
                        }
                        None => hold.ended = Some(hold.ended.map_or(at, |ended| ended.min(at))),
                    }
                }
            }
            Record::Downgraded { key, owner, at } => {
                if let Some(hold) = self.lock(key).hold_mut(&owner) {
                    hold.downgraded = Some(at);
                }
            }
            Record::Left { key, owner, at } => {
                if let Some(hold) = self.lock(key).hold_mut(&owner) {
                    hold.left = Some(at);
                    hold.ended = Some(hold.ended.map_or(at, |ended| ended.min(at)));
                }
            }
            Record::Accessed(access) => {
                let lock = self.lock(access.key.clone());
                lock.accesses.push(access);
            }
            Record::Seen(sighting) => {
                let lock = self.lock(sighting.key.clone());
                lock.sightings.push(sighting);
            }
            Record::Fault(fault) => self.faults.push(fault),
            Record::Leftover { what } => self.leftovers.push(what),
            Record::Over { .. } => {}
        }
    }

    fn operation(&mut self, operation: Operation) {
        let how = (operation.verb, operation.outcome);
        *self.operations.entry(how).or_default() += 1;
        if operation.outcome == Outcome::Refused {
            let error = operation.error.clone().unwrap_or_default();
            self.refusals.push(format!("{}: {error}", operation.verb));
        }
        let Some(owner) = operation.owner else {
            self.given_up(&operation);
            return;
        };
        let lock = self.locks.entry(operation.key).or_default();
        match how {
            (Verb::Release, Outcome::Released) => {
                if let Some(hold) = lock.hold_mut(&owner) {
                    hold.released = true;
                }
            }
            (Verb::Enter, Outcome::Granted) => {
                if let Some(hold) = lock.hold_mut(&owner) {
                    hold.lease = hold.lease.max(operation.lease);
                    hold.retain = hold.retain.max(operation.retain.unwrap_or_default());
                }
                let token = operation.token.unwrap_or_default();
                lock.nested.push(Nested {
                    owner,
                    mode: operation.mode,
                    called: operation.invoke,
                    token,
                });
            }
            (_, Outcome::Granted) => {
                let valid_until = operation.valid_until.unwrap_or(operation.returned);
                lock.add(Hold {
                    owner,
                    process: operation.process,
                    mode: operation.mode,
                    token: operation.token.unwrap_or_default(),
                    lease: operation.lease,
                    kept_for: operation.min_hold,
                    retain: operation.retain.unwrap_or_default(),
                    invoke: operation.invoke,
                    asked: operation.invoke,
                    granted: operation.returned,
                    earliest: valid_until.saturating_sub(operation.lease),
                    first_valid_until: valid_until,
                    valid_until,
                    valid_for: valid_until.saturating_sub(operation.returned),
                    ended: None,
                    downgraded: None,
                    left: None,
                    released: false,
                    in_body: matches!(how.0, Verb::Run | Verb::RunBoth),
                });
            }
            _ => {}
        }
    }

    fn given_up(&mut self, operation: &Operation) {
        let asks = !matches!(
            operation.verb,
            Verb::Enter | Verb::Downgrade | Verb::Release
        );
        let ended_without = matches!(
            operation.outcome,
            Outcome::Taken | Outcome::Unavailable | Outcome::Cancelled
        );
        if asks && ended_without {
            self.lock(operation.key.clone()).given_up.push(GivenUp {
                process: operation.process,
                lease: operation.lease,
                at: operation.returned,
            });
        }
    }

    /// Returns the faults that made the store forget this lock.
    pub(super) fn data_losses<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Fault> {
        self.faults.iter().filter(move |fault| {
            self.loses_data(fault.kind) && fault.key.as_deref().is_none_or(|own| own == key)
        })
    }

    /// Returns whether the store forgets locks by this fault. A lock that requires a replica survives a kill of its
    /// master. A paused master may continue for a moment after its successor has started.
    fn loses_data(&self, kind: FaultKind) -> bool {
        let replicas = self.run.as_ref().map_or(0, |run| run.replicas);
        kind.loses_data() && !(replicas > 0 && kind == FaultKind::MasterKilled)
    }

    /// Returns the end of the owner's reliance. The caller of a shutdown knows that its guards are
    /// not valid.
    pub(super) fn reliance_end(&self, hold: &Hold) -> u64 {
        let killed = self.killed.get(&hold.process);
        let closed = self.closed.get(client_of(&hold.owner));
        let ends = [
            Some(hold.valid_until),
            hold.ended,
            killed.copied(),
            closed.copied().filter(|_| !hold.in_body),
        ];
        ends.into_iter().flatten().min().unwrap_or_default()
    }

    /// Returns whether the store forgot this lock between these times.
    pub(super) fn forgotten(&self, key: &str, from: u64, to: u64) -> bool {
        self.data_losses(key)
            .any(|fault| fault.start <= to && fault.loses_until() >= from)
    }

    /// Returns whether two masters at the same time may have granted this lock twice. Neither knows
    /// the other's tokens. A master without a replica grants no lock that requires one.
    pub(super) fn led_by_two(&self, one: &Hold, other: &Hold) -> bool {
        let replicas = self.run.as_ref().map_or(0, |run| run.replicas);
        let splits = self
            .faults
            .iter()
            .filter(|fault| fault.kind.leaves_two_masters() && replicas == 0);
        let mut splits = splits.map(|fault| {
            // A hold may begin long after its grant, and a later request may confirm it. Then the call is the only known
            // lower bound of the grant, which was alive at the confirmation.
            let end = fault.loses_until();
            let within = |hold: &Hold| {
                let may_be_older = hold.earliest <= end + hold.lease.max(GRACE);
                hold.asked <= end && may_be_older && hold.granted >= fault.start
            };
            within(one) && within(other)
        });
        splits.any(|within| within)
    }

    pub(super) fn is_of_quorum(&self) -> bool {
        (self.run.as_ref()).is_some_and(|run| run.store == "quorum")
    }

    /// Returns the process of this owner's client.
    pub(super) fn process_of(&self, owner: &str) -> Option<u32> {
        self.clients.get(client_of(owner)).copied()
    }
}
