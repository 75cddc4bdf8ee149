//! Sample histories, in milliseconds and for one key, to test that violations are found.

use super::{Findings, Property, Violation, check};
use crate::histories::{
    history::History,
    mode::Mode,
    options::Kind,
    record::{
        Access, AccessKind, Fault, FaultKind, Operation, Outcome, Record, Run, Verb, client_of,
    },
};

pub(super) const MS: u64 = 1_000_000;
const KEY: &str = "k";
const LEASE: u64 = 100;

#[derive(Default)]
pub(super) struct Sample(Vec<Record>);

/// A hold of a sample.
pub(super) struct HoldOf<'a> {
    sample: &'a mut Sample,
    owner: String,
    token: u64,
}

/// Returns the violated properties, each once.
pub(super) fn broken(sample: &Sample) -> Vec<Property> {
    let mut all: Vec<Property> = sample
        .violations()
        .iter()
        .map(|violation| violation.property)
        .collect();
    all.dedup();
    all
}

fn process_of(owner: &str) -> u32 {
    u32::from(client_of(owner).as_bytes()[0])
}

impl Sample {
    pub(super) fn findings(&self) -> Findings {
        let mut history = History::default();
        for record in &self.0 {
            // Each record goes through its file format.
            let line = serde_json::to_string(record).expect("plain data");
            history.add(serde_json::from_str(&line).expect("what was written"));
        }
        check(&history)
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        self.findings().violations
    }

    pub(super) fn hold(&mut self, owner: &str, token: u64) -> HoldOf<'_> {
        let (process, client) = (process_of(owner), client_of(owner).to_owned());
        self.0.push(Record::Started {
            process,
            client,
            at: 0,
        });
        HoldOf {
            sample: self,
            owner: owner.to_owned(),
            token,
        }
    }

    fn operation(&mut self, verb: Verb, outcome: Outcome, owner: &str, token: u64) {
        self.0.push(Record::Operation(Operation {
            process: process_of(owner),
            task: 0,
            verb,
            key: KEY.to_owned(),
            mode: Mode::Exclusive,
            owner: Some(owner.to_owned()),
            count: Some(1),
            token: Some(token),
            lease: LEASE * MS,
            min_hold: None,
            retain: None,
            invoke: 0,
            returned: 0,
            valid_until: None,
            outcome,
            error: None,
        }));
    }

    fn last_operation(&mut self) -> &mut Operation {
        let last = self.0.iter_mut().rev().find_map(|record| match record {
            Record::Operation(operation) => Some(operation),
            _ => None,
        });
        last.expect("there is a hold")
    }

    pub(super) fn entered(&mut self, owner: &str, token: u64) {
        self.operation(Verb::Enter, Outcome::Granted, owner, token);
    }

    /// Adds an entry in this mode.
    pub(super) fn entered_in(&mut self, mode: Mode, owner: &str, token: u64, at: u64) {
        self.entered(owner, token);
        let operation = self.last_operation();
        operation.mode = mode;
        operation.invoke = at * MS;
    }

    pub(super) fn released(&mut self, owner: &str) {
        self.operation(Verb::Release, Outcome::Released, owner, 0);
    }

    /// Adds an abandoned call of this client with this lease.
    pub(super) fn gave_up(&mut self, client: &str, lease: u64, at: u64) {
        self.operation(Verb::Acquire, Outcome::Taken, client, 0);
        let operation = self.last_operation();
        operation.owner = None;
        operation.lease = lease * MS;
        operation.returned = at * MS;
    }

    pub(super) fn refused(&mut self) {
        self.operation(Verb::Acquire, Outcome::Refused, "a:1", 0);
    }

    /// Moves the grant of the last hold by this many nanoseconds.
    pub(super) fn shift_last_grant(&mut self, nanos: i64) {
        let operation = self.last_operation();
        operation.returned = operation.returned.saturating_add_signed(nanos);
    }

    pub(super) fn killed(&mut self, client: &str, at: u64) {
        self.0.push(Record::Killed {
            process: process_of(client),
            at: at * MS,
        });
    }

    pub(super) fn closed(&mut self, client: &str, at: u64) {
        self.0.push(Record::Closed {
            client: client.to_owned(),
            at: at * MS,
        });
    }

    /// Makes this the history of a quorum.
    pub(super) fn on_quorum(&mut self) {
        self.0.push(Record::Run(Run {
            seed: 0,
            store: Kind::Quorum,
            server: None,
            seconds: 1,
            processes: 1,
            tasks: 1,
            keys: 1,
            floor: 0,
            replicas: 0,
            at: 0,
        }));
    }

    fn fault(&mut self, kind: FaultKind, key: Option<&str>, start: u64, end: u64) {
        self.0.push(Record::Fault(Fault {
            key: key.map(str::to_owned),
            ..Fault::new(kind, start * MS, end * MS)
        }));
    }

    pub(super) fn flushed(&mut self, start: u64, end: u64) {
        self.fault(FaultKind::AllFlushed, None, start, end);
    }

    pub(super) fn two_masters(&mut self, start: u64, end: u64) {
        self.fault(FaultKind::MasterCutOff, None, start, end);
    }

    pub(super) fn deleted(&mut self, key: &str, at: u64) {
        self.fault(FaultKind::LockDeleted, Some(key), at, at);
    }

    pub(super) fn server_paused(&mut self, start: u64, end: u64) -> &mut Self {
        self.fault(FaultKind::ServerPaused, None, start, end);
        self
    }

    /// Assigns the last record to this server of a quorum.
    pub(super) fn at(&mut self, number: usize) {
        match self.0.last_mut() {
            Some(Record::Fault(Fault { server, .. }) | Record::Locked { server, .. }) => {
                *server = Some(number);
            }
            other => unreachable!("{other:?} is at no server"),
        }
    }

    pub(super) fn wrote(&mut self, owner: &str, token: u64, at: u64, accepted: bool) {
        self.access(AccessKind::Write, owner, token, at, accepted);
    }

    pub(super) fn read(&mut self, owner: &str, token: u64, at: u64, accepted: bool) {
        self.access(AccessKind::Read, owner, token, at, accepted);
    }

    fn access(&mut self, kind: AccessKind, owner: &str, token: u64, at: u64, accepted: bool) {
        self.0.push(Record::Accessed(Access {
            kind,
            key: KEY.to_owned(),
            owner: owner.to_owned(),
            token,
            at: at * MS,
            accepted,
            late: false,
        }));
    }

    pub(super) fn seen(&mut self, owner: &str, first: u64, last: u64) -> &mut Self {
        self.0.push(Record::Locked {
            key: KEY.to_owned(),
            owner: owner.to_owned(),
            first: first * MS,
            last: last * MS,
            server: None,
        });
        self
    }

    pub(super) fn left_over(&mut self, what: &str) {
        self.0.push(Record::Leftover {
            what: what.to_owned(),
        });
    }
}

impl HoldOf<'_> {
    /// Sets the time of the call, of its grant, and the end of its validity.
    pub(super) fn called(self, invoke: u64, granted: u64, valid_until: u64) -> Self {
        self.sample
            .operation(Verb::Acquire, Outcome::Granted, &self.owner, self.token);
        let operation = self.sample.last_operation();
        operation.invoke = invoke * MS;
        operation.returned = granted * MS;
        operation.valid_until = Some(valid_until * MS);
        self
    }

    pub(super) fn shares(self) -> Self {
        self.sample.last_operation().mode = Mode::Shared;
        self
    }

    /// Has one of this many permits.
    pub(super) fn permit_of(self, permits: u32) -> Self {
        self.sample.last_operation().mode = Mode::Permits(permits);
        self
    }

    pub(super) fn downgraded(self, at: u64) -> Self {
        self.sample.0.push(Record::Downgraded {
            key: KEY.to_owned(),
            owner: self.owner.clone(),
            at: at * MS,
        });
        self
    }

    pub(super) fn keeps(self, min_hold: u64) -> Self {
        self.sample.last_operation().min_hold = Some(min_hold * MS);
        self
    }

    pub(super) fn runs(self) -> Self {
        self.sample.last_operation().verb = Verb::Run;
        self
    }

    pub(super) fn looked(self, at: u64, valid_until: Option<u64>) -> Self {
        self.sample.0.push(Record::Looked {
            key: KEY.to_owned(),
            owner: self.owner.clone(),
            at: at * MS,
            valid_until: valid_until.map(|until| until * MS),
        });
        self
    }

    pub(super) fn left(self, at: u64) -> Self {
        self.sample.0.push(Record::Left {
            key: KEY.to_owned(),
            owner: self.owner.clone(),
            at: at * MS,
        });
        self
    }
}
