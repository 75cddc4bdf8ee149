//! Lists the explored worlds, one a line.

use crate::{
    mode::LockMode,
    protocol::{Caller, Config, Faults},
};

const NONE: Faults = Faults::NONE;

/// Defines sets of faults that may occur once each.
macro_rules! faults {
    ($($name:ident: $($fault:ident)+,)+) => {$(
        const $name: Faults = Faults { $($fault: 1,)+ ..NONE };
    )+};
}

faults! {
    REPEATS: repeats,
    GIVES_UP: gives_up,
    TIME_OUTS: time_outs,
    LATE: time_outs gives_up,
    UNPOLLED: unpolled,
    EARLY_POLLS: early_polls,
    DROPS: drops,
    FAILURES: failures,
    CRASHES: crashes,
    SHUT_DOWNS: shut_downs,
    LOST_REPLIES: lost_replies,
    LOST_NOTIFICATIONS: lost_notifications,
    LOST: lost_requests lost_replies lost_notifications,
    RESTARTS: restarts,
    LOST_FENCES: lost_fences,
    MISSED_GRANTS: missed_grants,
    REFUSED_TRIES: refused_tries,
    ASKED: release_requests,
    FORCED: forced_releases,
    OPERATOR: release_requests forced_releases,
    REPORTS: reports,
}

fn any(name: &'static str) -> Config {
    Config::new(name)
}

fn prompt(name: &'static str) -> Config {
    Config::prompt(name)
}

/// Makes a caller ask for two keys.
fn several(caller: &mut Caller) {
    caller.keys = &[0, 1];
}

fn shared(caller: &mut Caller) {
    caller.mode = LockMode::Shared;
}

fn one_of_two(caller: &mut Caller) {
    caller.mode = LockMode::Permits(2);
}

fn alone(caller: &mut Caller) {
    caller.mode = LockMode::Permits(1);
}

fn exclusive(caller: &mut Caller) {
    caller.mode = LockMode::Exclusive;
}

/// Makes a caller share its exclusive lock later.
fn shares_later(caller: &mut Caller) {
    (caller.mode, caller.downgrades) = (LockMode::Exclusive, true);
}

fn stays_taken(caller: &mut Caller) {
    caller.min_hold = Some(2);
}

/// Makes a caller try once.
fn tries(caller: &mut Caller) {
    caller.wait = Some(0);
}

fn readers(name: &'static str, of: &[usize]) -> Config {
    prompt(name).of(of).each(shared)
}

fn permits(name: &'static str, of: &[usize]) -> Config {
    prompt(name).of(of).each(one_of_two)
}

/// Returns worlds in which holders share a lock.
#[rustfmt::skip]
#[must_use]
pub fn with_modes() -> Vec<Config> {
    vec![
        readers("in time, two readers of one client, and a writer", &[2, 1]).one(1, 0, exclusive),
        readers("in time, readers of two clients, and a writer", &[1, 1, 1]).one(2, 0, exclusive),
        readers("in time, a client reads and writes", &[2, 1]).one(0, 1, exclusive),
        prompt("in time, three writers of one client, and a reader").of(&[3, 1]).one(1, 0, shared),
        readers("in time, a client reads and writes, a reader dies", &[2, 1]).one(0, 1, exclusive).with(CRASHES),
        readers("in time, readers, retention", &[2, 1]).one(1, 0, exclusive).retaining(2),
        readers("in time, readers, the end of a hold", &[2, 1]).one(1, 0, exclusive).each(|caller| caller.max_hold = Some(1)),
        readers("in time, readers, a lock that stays taken", &[2, 1]).one(1, 0, exclusive).each(stays_taken),
        readers("any delay, readers and a writer", &[2, 1]).one(1, 0, exclusive).at_any_time().until(1),
        readers("any delay, readers of two clients", &[1, 1]).at_any_time().until(3),
        readers("in time, a writer enters again and shares", &[1, 1]).one(0, 0, shares_later).entries(2),
        permits("in time, three want two permits", &[2, 1]),
        permits("in time, permits and a writer", &[1, 1, 1]).one(2, 0, exclusive),
        permits("any delay, permits", &[1, 1]).at_any_time().until(2),
        any("repeated messages, one permit").of(&[2, 1]).each(alone).with(REPEATS).until(1),
    ]
}

/// Returns larger worlds in which holders share a lock, some of them with faults.
#[rustfmt::skip]
fn with_modes_and_faults() -> Vec<Config> {
    let among = |name| readers(name, &[2, 1]).one(1, 0, exclusive);
    vec![
        readers("in time, a writer shares its lock later", &[2, 1]).one(0, 1, shares_later),
        readers("in time, a client of three reads and writes", &[3, 1]).one(0, 1, exclusive),
        among("in time, readers enter again").entries(2).until(7),
        among("in time, readers, lost replies").with(LOST_REPLIES).until(13),
        readers("in time, one of two readers or the writer dies", &[1, 1, 1]).one(2, 0, exclusive).with(CRASHES),
        among("in time, a reader that is not polled").with(UNPOLLED).until(13),
        among("in time, a reader or a writer gives up").with(LATE),
        readers("in time, the writer among readers gives up", &[1, 1, 1]).one(1, 0, exclusive).with(GIVES_UP),
        among("in time, readers, a client shuts down").with(SHUT_DOWNS),
        among("in time, readers, reports").with(REPORTS).until(6),
        among("in time, readers, an operator asks").with(ASKED).until(6),
        among("in time, readers, several keys").one(0, 0, several).one(1, 0, several),
        among("any delay, readers and a writer, until 2").at_any_time().until(2),
        readers("in time, a writer shares its lock later, lost replies", &[1, 1]).one(1, 0, shares_later).with(LOST_REPLIES).until(13),
        readers("any delay, a writer shares its lock later", &[1, 2]).one(1, 0, shares_later).at_any_time().until(1),
        permits("in time, three clients want two permits", &[1, 1, 1]),
        permits("in time, permits, one client dies", &[1, 1, 1]).with(CRASHES),
        permits("in time, permits, lost replies", &[2, 1]).with(LOST_REPLIES).until(13),
        permits("in time, permits, a call that is not polled", &[2, 1]).with(UNPOLLED).until(13),
    ]
}

/// Returns the worlds that every test run explores.
#[must_use]
pub fn small() -> Vec<Config> {
    let mut all = in_time();
    all.extend(with_modes());
    all.extend(with_terms());
    all.extend(with_losses());
    all.extend(at_any_time());
    all
}

/// Returns worlds in which anything may take any time.
#[rustfmt::skip]
#[must_use]
pub fn at_any_time() -> Vec<Config> {
    vec![
        any("any delay, writes").unrenewed().writing(),
        any("any delay, renewals").until(3),
        any("any delay, two callers each").of(&[2, 2]).until(1),
        any("any delay, three callers").of(&[3, 1]).until(1),
        any("any delay, re-entry").entries(2).until(2),
        any("any delay, retention").of(&[2, 1]).retaining(1).until(2),
        any("repeated messages").with(REPEATS).until(2),
        any("late requests").with(LATE).until(2),
        any("late requests, two callers").of(&[2, 1]).with(LATE).until(1),
        any("requests that are refused on their way").of(&[2, 1]).with(FAILURES).until(1),
        any("a call that is not polled").of(&[2, 1]).with(UNPOLLED).until(1),
        any("a call that is not polled, until 2").of(&[1, 1]).with(UNPOLLED).until(2),
        any("a dropped guard").of(&[2, 1]).with(DROPS).until(1),
        any("late requests, retention").of(&[2]).retaining(2).with(TIME_OUTS).until(2),
        any("a client dies").with(CRASHES).until(2),
        any("a client shuts down").of(&[2, 1]).with(SHUT_DOWNS).until(1),
        any("reports").with(REPORTS).until(2),
        any("reports, retention").of(&[2]).retaining(2).with(REPORTS).until(2),
        any("attempts in vain, retention").of(&[2]).retaining(1).with(REFUSED_TRIES).until(3),
        any("an operator asks").of(&[2, 1]).with(ASKED).until(1),
        any("an operator asks, retention").of(&[2, 1]).retaining(1).with(ASKED).until(1),
        any("an operator forces, writes").unrenewed().writing().with(FORCED).until(1),
        any("an operator forces, renewals").with(FORCED).until(1),
    ]
}

/// Returns worlds whose callers differ.
#[rustfmt::skip]
#[must_use]
pub fn with_terms() -> Vec<Config> {
    vec![
        any("any delay, several keys").one(0, 0, several).until(2),
        any("any delay, several keys, callers give up").one(0, 0, several).with(LATE).until(1),
        any("any delay, leases of two lengths").of(&[3, 1]).one(0, 0, |caller| caller.lease = 4).until(1),
        any("any delay, the end of a hold").one(0, 0, |caller| (caller.lease, caller.max_hold) = (4, Some(1))).until(3),
        any("any delay, a lock that stays taken").of(&[2, 1]).one(0, 0, stays_taken).until(1),
        any("any delay, waits that end").one(0, 0, |caller| caller.wait = Some(1)).until(3),
        any("any delay, attempts").of(&[2, 1]).one(0, 1, tries).until(1),
    ]
}

/// Returns worlds in which the server loses data.
#[rustfmt::skip]
#[must_use]
pub fn with_losses() -> Vec<Config> {
    vec![
        any("the server forgets, renewals").with(RESTARTS).until(2),
        any("the server forgets, writes").unrenewed().writing().with(RESTARTS).until(2),
        any("the server forgets, two callers").of(&[2, 1]).with(RESTARTS).until(1),
        any("the server loses a fence, writes").unrenewed().writing().with(LOST_FENCES).until(2),
        any("the server loses a fence, new fences").of(&[3, 1]).with(LOST_FENCES).until(1),
        any("an older copy takes over").of(&[2, 1]).with(MISSED_GRANTS).until(1),
        any("an older copy takes over, new fences").of(&[3, 1]).with(MISSED_GRANTS).until(1),
    ]
}

/// Returns worlds in which clients act at once. Two of them lack one of the two ways to notify an owner that its lock is wanted,
/// because the other is enough.
#[rustfmt::skip]
#[must_use]
pub fn in_time() -> Vec<Config> {
    let until_wanted = |name| prompt(name).retaining(99);
    vec![
        prompt("in time, two callers").of(&[2, 1]),
        prompt("in time, three callers").of(&[3, 1]),
        prompt("in time, retention").of(&[2, 1]).retaining(2),
        until_wanted("in time, retention until it is wanted, lost messages").with(LOST),
        Config { renewals_report: false,..until_wanted("in time, retention, wanted by message only") },
        Config { notifies_once: true,..until_wanted("in time, retention, wanted by renewals only").with(LOST_NOTIFICATIONS) },
        prompt("in time, an attempt in vain ends a retention").of(&[1]).retaining(99).with(REFUSED_TRIES),
        prompt("in time, a client shuts down").retaining(99).with(SHUT_DOWNS),
        prompt("in time, re-entry, lost replies").entries(2).with(LOST_REPLIES).until(13),
        Config { counts_entries: false,..prompt("in time, re-entry that is not counted").entries(2).of(&[2, 1]) },
        prompt("in time, lost messages").with(LOST).until(13),
        prompt("in time, callers give up").with(LATE),
        prompt("in time, two callers, callers give up").of(&[2, 1]).with(GIVES_UP),
        prompt("in time, polls without a wake-up").of(&[2, 1]).with(EARLY_POLLS).until(6),
        prompt("in time, one of three dies").of(&[1, 1, 1]).with(CRASHES),
        prompt("in time, requests that are refused on their way").with(FAILURES),
        prompt("in time, reports").with(REPORTS),
        prompt("in time, an operator asks and forces").with(OPERATOR).until(6),
        prompt("in time, several keys").of(&[2, 1]).one(0, 0, several).one(1, 0, several),
        prompt("in time, several keys, lost replies").one(0, 0, several).with(LOST_REPLIES).until(13),
        prompt("in time, the end of a hold").of(&[2, 1]).each(|caller| caller.max_hold = Some(1)),
        prompt("in time, a lock that stays taken").of(&[2, 1]).each(stays_taken),
        prompt("in time, waits that end").of(&[2, 1]).each(|caller| caller.wait = Some(1)).with(LOST_REPLIES).until(13),
        prompt("in time, attempts").of(&[2, 1]).one(0, 1, tries).one(1, 0, tries),
    ]
}

/// Returns the worlds that are explored on demand.
#[rustfmt::skip]
#[must_use]
pub fn large() -> Vec<Config> {
    let mut all = with_modes_and_faults();
    all.extend([
        any("any delay, two callers each, until 2").of(&[2, 2]).until(2),
        any("any delay, renewals, until 5").until(5),
        Config { in_order: true,..any("three owners, in order").of(&[1, 2]).until(3) },
        any("any delay, writes, until 4").unrenewed().writing().until(4),
        any("any delay, retention, until 3").of(&[2, 1]).retaining(1).until(3),
        any("any delay, re-entry, until 3").entries(2).until(3),
        any("any delay, several keys, until 3").one(0, 0, several).until(3),
        any("any delay, the end of a hold, until 2").of(&[2, 1]).one(0, 0, |caller| caller.max_hold = Some(1)).until(2),
        any("three owners").of(&[1, 2]).unrenewed().until(3),
        any("repeated messages, until 3").with(REPEATS).until(3),
        any("late requests, until 3").with(LATE).until(3),
        any("a call that is not polled, until 3").with(UNPOLLED).until(3),
        any("a client shuts down, until 2").of(&[2, 1]).with(SHUT_DOWNS).until(2),
        any("reports, until 3").with(REPORTS).until(3),
        any("an operator forces, writes, until 2").unrenewed().writing().with(FORCED).until(2),
        any("an operator forces, renewals, until 2").with(FORCED).until(2),
        any("an operator asks, until 2").of(&[2, 1]).with(ASKED).until(2),
        any("the server forgets, renewals, until 3").with(RESTARTS).until(3),
        any("the server forgets, writes, until 3").unrenewed().writing().with(RESTARTS).until(3),
        any("an operator forces, two callers").of(&[2, 1]).with(FORCED).until(1),
        any("any delay, the end of a hold, until 4").one(0, 0, |caller| (caller.lease, caller.max_hold) = (4, Some(1))).until(4),
    ]);
    all.extend(large_in_time());
    all
}

#[rustfmt::skip]
fn large_in_time() -> Vec<Config> {
    vec![
        prompt("in time, the first of three gives up").of(&[1, 1, 1]).with(GIVES_UP).until(6),
        prompt("in time, re-entry, two callers").of(&[2, 1]).entries(2).until(7),
        prompt("in time, nested calls are given up").entries(2).with(LATE),
        prompt("in time, a call that is not polled").of(&[2, 1]).with(UNPOLLED).until(13),
        prompt("in time, leases of two lengths").of(&[3, 1]).one(0, 1, |caller| caller.lease = 4).until(8),
        prompt("in time, two callers each").of(&[2, 2]),
        prompt("in time, two callers, lost replies").of(&[2, 1]).with(LOST_REPLIES).until(14),
        prompt("in time, several keys, lost messages").one(0, 0, several).with(LOST),
        prompt("in time, one of three dies, lost notifications").of(&[1, 1, 1]).with(Faults { lost_notifications: 1,..CRASHES }),
        prompt("in time, three clients, two callers of one").of(&[2, 1, 1]).until(12),
    ]
}
