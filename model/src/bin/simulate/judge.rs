//! What every run must do. The judge sees each hold, loss, refusal and write while the run goes on, and remembers only
//! what is present.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    engine::machine::{Loss, Machine, Owner, Refusal},
    error::LostCause,
    key::Key,
    lease::Time,
};

/// How long a free lock may have a waiter, since the last event that may delay its grant: a lost notification costs
/// five seconds, a lost request two, a waiter that has gone one, and a holder that has gone its lease.
pub(crate) const LONGEST_IDLE: u64 = 20_000_000_000;
/// The same, if nothing delays grants.
pub(crate) const SHORTEST_IDLE: u64 = 3_000_000_000;

/// How long a server may keep a lock for an owner that its client does not know: it was handed off to a waiter that had
/// gone.
const LONGEST_ORPHANED: Duration = Duration::from_millis(1_600);

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    OneHolder,
    TokensGrow,
    NoStaleWrite,
    InTime,
    WaitersAreServed,
    NothingIsLeft,
    NoRefusalWithoutReason,
    NoFalseLoss,
    CountsAreRight,
    /// The holds begin with ownerships that their client may still use.
    IsUsable,
    RenewalsHaveReason,
    LeasesCover,
    Kept,
    HandoversLimited,
    IsConsistent,
}

impl Rule {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::OneHolder => "at most one owner holds a lock",
            Self::TokensGrow => "tokens grow with every hold",
            Self::NoStaleWrite => "a resource that checks tokens refuses no rightful write",
            Self::InTime => "a call ends by its deadline",
            Self::WaitersAreServed => "no lock stays free while a call waits for it",
            Self::NothingIsLeft => "nothing is left at the end",
            Self::NoRefusalWithoutReason => "no call is refused without a reason",
            Self::NoFalseLoss => "no hold is lost without a reason",
            Self::CountsAreRight => "the server counts the entries",
            Self::IsUsable => "no hold begins with an ownership that is over or in doubt",
            Self::RenewalsHaveReason => "only what is held or retained is renewed",
            Self::LeasesCover => "a client relies on a lock for no longer than the server keeps it",
            Self::Kept => "no hold begins within the `at_least` of the one before",
            Self::HandoversLimited => {
                "a client serves itself no more often than its limit while others wait"
            }
            Self::IsConsistent => "the machine is consistent",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}

/// A hold of a client. Whether it still relies on the lock, its machine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) client: usize,
    pub(crate) life: u32,
    pub(crate) owner: Owner,
    pub(crate) token: u64,
}

/// What is known of a key.
#[derive(Default)]
struct Lock {
    holds: Vec<Hold>,
    last_token: u64,
    /// Holds with this token, or a smaller one, may have been lost by a fault. Their holders learn that later.
    void: u64,
    /// Until when this includes holds that begin: at a quorum, a fault may hit a part of a grant.
    void_until: u64,
    /// The owner that the server knew at the last audit, and since when its client did not know it.
    owner: String,
    orphaned: u64,
    /// Until when it stays taken after the last hold.
    kept_until: u64,
    /// How many calls of a client were served in a row while other clients waited.
    handovers: (usize, usize),
    /// The largest token that the resource has seen.
    highest: u64,
    /// The last event that may delay a grant.
    moved: u64,
}

#[derive(Default)]
pub(crate) struct Judge {
    locks: BTreeMap<Key, Lock>,
    pub(crate) violation: Option<Violation>,
    pub(crate) holds: u64,
    pub(crate) excused: u64,
    pub(crate) stale_writes: u64,
    pub(crate) longest_idle: u64,
}

impl Judge {
    pub(crate) fn breaks(&mut self, rule: Rule, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { rule, what: what() });
        }
    }

    fn lock(&mut self, key: &Key) -> &mut Lock {
        if !self.locks.contains_key(key) {
            self.locks.insert(key.clone(), Lock::default());
        }
        self.locks.get_mut(key).expect("it is there now")
    }

    /// Notes that the holds of a key up to this token may be lost, by a fault, and those that begin until this time.
    pub(crate) fn voids(&mut self, key: &Key, token: u64, now: u64, until: u64) {
        let lock = self.lock(key);
        lock.void = lock.void.max(token).max(lock.last_token);
        lock.void_until = lock.void_until.max(until);
        (lock.moved, lock.kept_until) = (now, 0);
    }

    /// Returns whether a fault may have taken a lock from this hold.
    pub(crate) fn is_excused(&self, key: &Key, token: u64, now: u64) -> bool {
        let lock = self.locks.get(key);
        lock.is_some_and(|lock| token <= lock.void || now < lock.void_until)
    }

    /// Notes until when a lock stays taken after its hold.
    pub(crate) fn keeps(&mut self, key: &Key, until: u64) {
        let lock = self.lock(key);
        lock.kept_until = lock.kept_until.max(until);
    }

    /// Notes a hold that begins. `is_next`: the client served itself while others wait. `most`: how often it may.
    pub(crate) fn serves(&mut self, key: &Key, client: usize, is_next: bool, most: usize) {
        let lock = self.lock(key);
        lock.handovers = match lock.handovers {
            (of, so_far) if is_next && of == client => (of, so_far + 1),
            _ => (client, usize::from(is_next)),
        };
        let (_, handovers) = lock.handovers;
        // The last one may have been served before it was known that others wait.
        if handovers > most + 1 {
            self.breaks(Rule::HandoversLimited, || {
                format!("{key}: {handovers} calls in a row")
            });
        }
    }

    fn is_void(&self, key: &Key, token: u64) -> bool {
        self.locks.get(key).is_some_and(|lock| token <= lock.void)
    }

    /// Notes an event that may delay the next grant of a key until this time.
    pub(crate) fn moves(&mut self, key: &Key, at: u64) {
        let lock = self.lock(key);
        lock.moved = lock.moved.max(at);
    }

    /// Notes a hold that begins. `relies`: whether another hold still relies on the lock.
    pub(crate) fn begins(
        &mut self,
        key: &Key,
        hold: Hold,
        now: u64,
        relies: impl Fn(&Hold) -> bool,
    ) {
        self.holds += 1;
        let lock = self.lock(key);
        lock.moved = lock.moved.max(now);
        lock.holds.retain(&relies);
        if now < lock.void_until {
            lock.void = lock.void.max(hold.token);
        }
        let void = lock.void;
        let is_other = |other: &&Hold| (other.client, other.owner) != (hold.client, hold.owner);
        let other = lock.holds.iter().find(is_other).copied();
        let is_late = hold.token <= lock.last_token;
        let last = lock.last_token;
        lock.last_token = last.max(hold.token);
        lock.holds
            .retain(|other| (other.client, other.owner) != (hold.client, hold.owner));
        lock.holds.push(hold);
        if hold.token <= void {
            self.excused += 1;
            return;
        }
        let kept_until = self.lock(key).kept_until;
        if now < kept_until {
            let early = Duration::from_nanos(kept_until - now);
            self.breaks(Rule::Kept, || {
                format!("{key}: {hold:?} begins {early:?} early")
            });
        }
        if is_late {
            self.breaks(Rule::TokensGrow, || {
                format!("{key}: {hold:?} after the token {last}")
            });
        }
        match other {
            Some(other) if other.token <= void => self.excused += 1,
            Some(other) => {
                self.breaks(Rule::OneHolder, || {
                    format!("{key}: {hold:?} beside {other:?}")
                });
            }
            None => {}
        }
    }

    /// Returns whether a hold of the key is noted.
    pub(crate) fn is_held(&mut self, key: &Key, relies: impl Fn(&Hold) -> bool) -> bool {
        let lock = self.lock(key);
        lock.holds.retain(relies);
        !lock.holds.is_empty()
    }

    /// Notes that a write arrives. `relies`: whether its hold still relies on the lock.
    pub(crate) fn writes(&mut self, key: &Key, token: u64, relies: bool) {
        let lock = self.lock(key);
        let is_refused = token < lock.highest;
        lock.highest = lock.highest.max(token);
        let (highest, is_void) = (lock.highest, token <= lock.void);
        self.stale_writes += u64::from(is_refused);
        if is_refused && relies && !is_void {
            let what = || format!("{key}: {token} is refused after {highest}");
            self.breaks(Rule::NoStaleWrite, what);
        }
    }

    /// Notes a loss. `is_expected`: whether faults may delay renewals, or end holds.
    pub(crate) fn loses(&mut self, loss: &Loss, token: u64, is_expected: bool) {
        self.lock(&loss.key).kept_until = 0;
        let is_void = self.is_void(&loss.key, token);
        let is_false = match loss.cause {
            LostCause::Removed => !is_void && !is_expected,
            LostCause::Expired => !is_expected,
            _ => false,
        };
        if is_false {
            self.breaks(Rule::NoFalseLoss, || {
                format!("{loss:?} with the token {token}")
            });
        }
    }

    /// Notes a call that gets no lock.
    pub(crate) fn refuses(&mut self, why: &Refusal, is_early: bool, has_failed: bool) {
        let is_wrong = match why {
            Refusal::Taken(..) => is_early,
            Refusal::Failed => !has_failed,
            Refusal::Lost(..) | Refusal::Draining | Refusal::Closed => false,
        };
        if is_wrong {
            self.breaks(Rule::NoRefusalWithoutReason, || {
                format!("{why:?}, early: {is_early}")
            });
        }
    }

    /// Notes the owner that the server knows, and whether its client knows it, too.
    pub(crate) fn sees(&mut self, key: &Key, owner: String, is_known: bool, now: u64) {
        let lock = self.lock(key);
        if lock.owner != owner {
            (lock.owner, lock.moved) = (owner, lock.moved.max(now));
            lock.orphaned = now;
        }
        if is_known {
            lock.orphaned = now;
        }
        let orphaned = Duration::from_nanos(now - lock.orphaned);
        if orphaned > LONGEST_ORPHANED {
            self.breaks(Rule::NothingIsLeft, || {
                format!("{key} has an owner that is gone for {orphaned:?}")
            });
        }
    }

    /// Looks at a key that a call has waited for since `since`.
    pub(crate) fn waits(&mut self, key: &Key, since: u64, now: u64, most: u64) {
        let moved = self.lock(key).moved.max(since);
        let idle = now.saturating_sub(moved);
        self.longest_idle = self.longest_idle.max(idle);
        if idle > most {
            let idle = Duration::from_nanos(idle);
            self.breaks(Rule::WaitersAreServed, || {
                format!("{key} is free for {idle:?}")
            });
        }
    }
}

/// Returns whether a hold relies on its lock at this time of its client.
pub(crate) fn relies(machine: &Machine, key: &Key, hold: &Hold, now: Time) -> bool {
    let own = machine.own(key, hold.owner);
    own.is_some_and(|own| own.is_live(hold.token) && own.valid_until(now).is_ok())
}
