//! A client without a store, for tests that tell its machine what the store replies.

use super::super::super::*;
use crate::{
    few::Few,
    lost::LostCause,
    mode::LockMode,
    options::LockOptions,
    store::{Acquired, Applied, QueuePlace, RenewalOutcome, TakenBy},
};

/// A hold by it is valid for 2,968 ms, and is renewed every 1,000 ms.
pub(super) const LEASE: u64 = 3_000;
pub(super) const LONG: u64 = 30_000;
pub(super) const FENCE: u64 = 7;

pub(super) use crate::store::TOKENS;

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn at(ms: u64) -> Time {
    Time::from(Duration::from_millis(ms))
}

pub(super) fn key(name: &str) -> Key {
    Key::parse(name).expect("valid")
}

pub(super) fn wanted(name: &str, mode: LockMode) -> WantedLock {
    WantedLock {
        key: key(name),
        mode,
    }
}

/// Returns a hold as a call inside it sees it.
pub(super) fn inside(outer: &Entered) -> Few<Inside> {
    one(Inside {
        slot: outer.entry.slot,
        owner: outer.entry.owner,
        token: outer.token,
        entry: outer.entry.number,
    })
}

/// Returns the options of a call.
pub(super) fn terms(lease: u64) -> LockOptions {
    LockOptions {
        lease: ms(lease),
        ..LockOptions::default()
    }
}

/// Returns options with a change.
pub(super) fn with(change: impl FnOnce(&mut LockOptions)) -> LockOptions {
    let mut terms = terms(LEASE);
    change(&mut terms);
    terms
}

pub(super) fn retained() -> LockOptions {
    with(|terms| terms.retain = ms(10_000))
}

pub(super) fn unrenewed() -> LockOptions {
    with(|terms| terms.watchdog = false)
}

/// A client at a time, with what it wants to be done.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) machine: Machine,
    pub(super) now: u64,
    pub(super) calls: u64,
    pub(super) outputs: Vec<Output>,
}

impl Client {
    pub(super) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(super) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            response_timeout: ms(2_000),
            local_handovers: 16,
            counts_entries: true,
            replicas: false,
            needs_majority: false,
            fence_retention: ms(60_000),
            tokens: TOKENS,
        };
        change(&mut settings);
        Self {
            machine: Machine::new(settings, Spread::default()),
            now: 0,
            calls: 0,
            outputs: Vec::new(),
        }
    }

    /// Returns a client with a call that asks the store for `k`.
    pub(super) fn asking(terms: LockOptions) -> (Self, CallId, Box<Request>) {
        let mut client = Self::new();
        let (call, step) = client.acquire("k", terms);
        (client, call, asked(step))
    }

    /// Returns a client with a hold of `k`.
    pub(super) fn holding(terms: LockOptions) -> (Self, Entered) {
        let mut client = Self::new();
        let entered = client.hold(terms);
        (client, entered)
    }

    pub(super) fn on(&mut self, input: Input) -> Step {
        let outputs = self.machine.on(input, at(self.now));
        let (steps, others): (Vec<_>, Vec<_>) = outputs
            .into_iter()
            .partition(|output| matches!(output, Output::Step(_)));
        self.outputs.extend(others);
        match steps.into_iter().next() {
            Some(Output::Step(step)) => step,
            _ => Step::Wait,
        }
    }

    /// Returns the same client at another time.
    pub(super) fn clone_at(&self, now: u64) -> Self {
        let client = self.clone();
        Self { now, ..client }
    }

    pub(super) fn tick(&mut self, now: u64) {
        self.now = now;
        self.on(Input::Time);
    }

    /// Applies an event of the current ownership.
    pub(super) fn event(&mut self, event: Event) {
        let own = self.machine.slot(&key("k")).and_then(Slot::current);
        let owner = own.map(|own| own.owner);
        self.on(Input::Event(key("k"), owner, event));
    }

    /// Takes the outputs of a kind.
    pub(super) fn take<T>(&mut self, of: impl Fn(&Output) -> Option<T>) -> Vec<T> {
        let taken = self.outputs.iter().filter_map(&of).collect();
        self.outputs.retain(|output| of(output).is_none());
        taken
    }

    /// Takes the requests that the background sends.
    pub(super) fn sent(&mut self) -> Vec<Request> {
        self.take(|output| match output {
            Output::Send(request) => Some((**request).clone()),
            _ => None,
        })
    }

    /// Takes the only one of them.
    pub(super) fn sent_one(&mut self) -> Box<Request> {
        let [request] = self.sent().try_into().expect("one request is sent");
        Box::new(request)
    }

    pub(super) fn renewals(&mut self) -> Vec<Renew> {
        self.take(|output| match output {
            Output::Renew(renew) => Some((**renew).clone()),
            _ => None,
        })
    }

    pub(super) fn renewal(&mut self) -> Renew {
        let [renew] = self.renewals().try_into().expect("one renewal is sent");
        renew
    }

    pub(super) fn losses(&mut self) -> Vec<LostCause> {
        self.take(|output| match output {
            Output::Lost(loss) => Some(loss.cause),
            _ => None,
        })
    }

    pub(super) fn revoked(&mut self, token: Option<u64>, at_once: bool) -> Vec<Revoked> {
        self.event(Event::Revoke { token, at_once });
        self.take(|output| match output {
            Output::Revoked(revoked) => Some(*revoked),
            _ => None,
        })
    }

    pub(super) fn is_woken(&mut self, call: CallId) -> bool {
        let woken = self.take(|output| (*output == Output::Wake(call)).then_some(()));
        !woken.is_empty()
    }

    pub(super) fn begin(
        &mut self,
        locks: Few<WantedLock>,
        inside: Few<Inside>,
        options: LockOptions,
    ) -> (CallId, Step) {
        self.calls += 1;
        let call = CallId(self.calls);
        let step = self.on(Input::Acquire {
            call,
            locks,
            inside,
            options,
            runs_body: false,
        });
        (call, step)
    }

    /// Begins a call for these keys.
    pub(super) fn acquire(&mut self, keys: &str, terms: LockOptions) -> (CallId, Step) {
        let locks = keys.split(' ').map(|name| wanted(name, terms.mode));
        self.begin(locks.collect(), Few::new(), terms)
    }

    /// Begins a call that waits for its turn.
    #[track_caller]
    pub(super) fn queue(&mut self, keys: &str, terms: LockOptions) -> CallId {
        let (call, step) = self.acquire(keys, terms);
        assert_eq!(step, Step::Wait);
        call
    }

    /// Begins a call inside a hold of `k`.
    pub(super) fn nest(&mut self, outer: &Entered, lease: u64) -> (CallId, Step) {
        self.nest_as(outer, terms(lease))
    }

    pub(super) fn nest_as(&mut self, outer: &Entered, terms: LockOptions) -> (CallId, Step) {
        self.begin(one(wanted("k", terms.mode)), inside(outer), terms)
    }

    /// Enters a hold of `k`.
    pub(super) fn enter(&mut self, outer: &Entered, lease: u64) -> Entered {
        only(self.nest(outer, lease).1)
    }

    /// Begins a hold of `k`.
    pub(super) fn hold(&mut self, terms: LockOptions) -> Entered {
        let (_, step) = self.acquire("k", terms);
        let step = self.grant(asked(step), FENCE);
        only(step)
    }

    /// Polls a woken call, and returns its request.
    pub(super) fn next(&mut self, call: CallId) -> Box<Request> {
        assert!(self.is_woken(call));
        asked(self.poll(call))
    }

    pub(super) fn poll(&mut self, call: CallId) -> Step {
        self.on(Input::Poll(call))
    }

    /// Applies a reply. Returns the next step of the call.
    pub(super) fn reply(&mut self, request: Box<Request>, reply: Reply) -> Step {
        self.on(Input::Reply(request, reply))
    }

    /// Applies a reply to the only request that the background sends.
    pub(super) fn reply_to_sent(&mut self, reply: Reply) {
        let request = self.sent_one();
        self.on(Input::Reply(request, reply));
    }

    /// Grants a request that was sent just now.
    pub(super) fn grant(&mut self, request: Box<Request>, fence: u64) -> Step {
        let granted = granted(fence, request.claims.len(), self.now);
        self.reply(request, granted)
    }

    /// Refuses a request because another owner has the lock of this claim, for a second.
    pub(super) fn refuse(&mut self, request: Box<Request>, claim: usize, fence: u64) -> Step {
        let place = QueuePlace {
            first: true,
            ..QueuePlace::BEHIND
        };
        self.refuse_as(request, (claim, Some(fence)), place, ms(1_000))
    }

    /// Refuses a request because another owner has the lock for this time. The call waits at this place.
    pub(super) fn refuse_at(&mut self, request: Box<Request>, place: QueuePlace, ttl: Duration) {
        let step = self.refuse_as(request, (0, Some(0)), place, ttl);
        assert_eq!(step, Step::Wait);
    }

    /// Refuses a request because another owner has the lock of this claim. The reply says that this client may have the others.
    pub(super) fn refuse_only(&mut self, request: Box<Request>, claim: usize) -> Step {
        self.refuse_as(request, (claim, None), QueuePlace::BEHIND, ms(1_000))
    }

    fn refuse_as(
        &mut self,
        request: Box<Request>,
        (claim, fence): (usize, Option<u64>),
        place: QueuePlace,
        ttl: Duration,
    ) -> Step {
        let mut past_fences = Few::from_elem(fence, request.claims.len());
        past_fences[claim] = fence.or(Some(0));
        let taken = Acquired::Taken {
            claim,
            ttl: Some(ttl),
            queued: Some(place),
            sent_at: at(self.now),
            past_fences,
            retired: false,
            by: TakenBy::Unnamed,
        };
        self.reply(request, Reply::Acquired(taken))
    }

    /// Refuses a request because no owner has a majority of the servers, and this one had some of them.
    pub(super) fn split(&mut self, request: Box<Request>) -> Step {
        let taken = Acquired::Taken {
            claim: 0,
            ttl: None,
            queued: None,
            sent_at: at(self.now),
            past_fences: one(Some(0)),
            retired: true,
            by: TakenBy::NoMajority,
        };
        self.reply(request, Reply::Acquired(taken))
    }

    /// Replies to the only renewal, which was sent just now.
    pub(super) fn renew(&mut self, outcome: Option<RenewalOutcome>) {
        let renew = self.renewal();
        self.renewed(&renew, self.now, outcome);
    }

    /// Replies to a renewal that was sent at `sent_at`.
    pub(super) fn renewed(&mut self, renew: &Renew, sent_at: u64, outcome: Option<RenewalOutcome>) {
        self.on(Input::Renewed {
            renew: renew.clone(),
            sent_at: at(sent_at),
            outcome,
        });
    }

    /// Ends an entry, whose call waits for the store.
    pub(super) fn leave(&mut self, entered: &Entered) -> Step {
        self.calls += 1;
        let call = Some(CallId(self.calls));
        self.leave_as(entered, call)
    }

    pub(super) fn leave_as(&mut self, entered: &Entered, call: Option<CallId>) -> Step {
        self.end(entered, HoldEnd::Released, call)
    }

    pub(super) fn end(&mut self, entered: &Entered, end: HoldEnd, call: Option<CallId>) -> Step {
        self.on(Input::Leave {
            entry: entered.entry.clone(),
            end,
            call,
        })
    }

    pub(super) fn own(&self) -> &Ownership {
        let slot = self.machine.slot(&key("k"));
        slot.and_then(Slot::current).expect("there is one")
    }

    /// Returns when the present hold ends, in milliseconds.
    pub(super) fn valid_until(&self) -> u64 {
        let until = self.own().valid_until(at(self.now)).expect("valid");
        until.nanos() / 1_000_000
    }

    pub(super) fn is_empty(&self) -> bool {
        self.machine.slots().next().is_none() && self.machine.calls.is_empty()
    }
}

pub(super) const HELD: Option<RenewalOutcome> = Some(held(false, 0));

pub(super) const fn held(wanted: bool, fence: u64) -> RenewalOutcome {
    RenewalOutcome::Held { wanted, fence }
}

pub(super) fn granted(fence: u64, claims: usize, sent_at: u64) -> Reply {
    Reply::Acquired(Acquired::Granted {
        fences: Few::from_elem(fence, claims),
        wanted: false,
        sent_at: at(sent_at),
    })
}

pub(super) const DONE: Reply = Reply::Applied(Applied::Done);
pub(super) const NOT_HELD: Reply = Reply::Applied(Applied::NotHeld);
pub(super) const UNANSWERED: Reply = Reply::Failed(Failure::UNANSWERED);
pub(super) const NOT_EXECUTED: Reply = Reply::Failed(Failure {
    maybe_executed: false,
    transient: true,
});

/// The store refuses the request, and would refuse it again.
pub(super) const REFUSED: Reply = Reply::Failed(Failure {
    maybe_executed: false,
    transient: false,
});

pub(super) fn asked(step: Step) -> Box<Request> {
    match step {
        Step::Send(request) => request,
        step => panic!("{step:?}"),
    }
}

pub(super) fn only(step: Step) -> Entered {
    match step {
        Step::Entered(entered) if entered.len() == 1 => entered[0].clone(),
        step => panic!("{step:?}"),
    }
}

/// Checks that a call was refused because another owner has its lock.
#[track_caller]
pub(super) fn assert_taken(step: &Step) {
    assert!(is_taken(step), "{step:?}");
}

pub(super) fn is_taken(step: &Step) -> bool {
    matches!(step, Step::Refused(Refusal::Taken(..)))
}

pub(super) fn owner(request: &Request) -> Owner {
    request.claims[0].owner
}

/// Returns for how long a release keeps the lock taken.
pub(super) fn kept(request: &Request) -> Duration {
    match request.what {
        Ask::Release { min_hold, .. } => min_hold,
        _ => panic!("{request:?}"),
    }
}

/// Returns the count that a request sets.
pub(super) fn count(request: &Request) -> u32 {
    match request.what {
        Ask::SetCount { count, .. } => count,
        _ => panic!("{request:?}"),
    }
}

pub(super) fn repeats(request: &Request) -> bool {
    request.is_release() && request.repeats()
}

/// Returns the message that an owner has to ask again after this time.
pub(super) fn retry(mode: LockMode, after: u64) -> Event {
    let after = ms(after);
    Event::Retry { mode, after }
}

/// Returns the message that the store handed the lock off for a second.
pub(super) fn handed_off(fence: u64, wanted: bool) -> Event {
    Event::Granted {
        mode: LockMode::Exclusive,
        fence,
        ttl: ms(1_000),
        wanted,
    }
}
