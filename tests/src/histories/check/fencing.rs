//! A resource that checks tokens accepts no stale access, and refuses no fresh one.
//!
//! A stale write comes after an access of a later holder, and a stale read after a write of one. The
//! check of that ignores tokens.

use std::collections::HashMap;

use super::{Findings, Property};
use crate::histories::{
    clock::ms,
    history::{History, Lock},
    record::{Access, AccessKind},
};

pub(super) fn check(history: &History, findings: &mut Findings) {
    for (key, lock) in &history.locks {
        accepted(key, lock, findings);
        refused(history, key, lock, findings);
    }
}

/// The newest holder and the highest token.
#[derive(Clone, Copy, Default)]
struct Latest {
    holder: usize,
    token: u64,
}

impl Latest {
    fn add(&mut self, holder: usize, token: u64) {
        self.holder = self.holder.max(holder);
        self.token = self.token.max(token);
    }
}

fn description(access: &Access) -> String {
    let Access {
        kind,
        owner,
        token,
        at,
        ..
    } = access;
    format!("a {kind} of {owner} (token {token}, {} ms)", ms(*at))
}

fn accepted(key: &str, lock: &Lock, findings: &mut Findings) {
    let mut holders: HashMap<&str, usize> = HashMap::new();
    let (mut written, mut accessed) = (Latest::default(), Latest::default());
    for access in lock.accesses.iter().filter(|access| access.accepted) {
        let next = holders.len() + 1;
        let holder = *holders.entry(&access.owner).or_insert(next);
        let latest = match access.kind {
            AccessKind::Write => accessed,
            AccessKind::Read => written,
        };
        let stale = if holder < latest.holder {
            "after a later holder's"
        } else if access.token < latest.token {
            "with a smaller token than another before"
        } else {
            accessed.add(holder, access.token);
            if access.kind == AccessKind::Write {
                written.add(holder, access.token);
            }
            continue;
        };
        let what = format!("{key}: {} was accepted {stale}", description(access));
        findings.breaks(Property::NoStaleWrite, what);
    }
}

/// Checks that no access is refused. A refusal requires an earlier access with a larger token. While
/// a holder relies on its lock, no other owner should have one, unless two masters granted it at once.
fn refused(history: &History, key: &str, lock: &Lock, findings: &mut Findings) {
    for access in lock.accesses.iter().filter(|access| !access.accepted) {
        let Some(hold) = lock.hold(&access.owner) else {
            continue;
        };
        let end = history.reliance_end(hold);
        if access.at < hold.granted || access.at >= end {
            continue;
        }
        let mut before = lock.accesses.iter().filter(|before| {
            let refuses = AccessKind::Write == before.kind || AccessKind::Write == access.kind;
            refuses && before.accepted && before.at <= access.at && before.token > access.token
        });
        let is_of_another_master = before.any(|before| {
            let other = lock.hold(&before.owner);
            other.is_some_and(|other| history.led_by_two(hold, other))
        });
        let is_excused = history.forgotten(key, hold.earliest, access.at) || is_of_another_master;
        let access = description(access);
        let what = format!("{key}: {access} was refused while it relied on its lock");
        if is_excused {
            findings.other_by_nature(Property::NoStaleWrite, what);
        } else {
            findings.breaks(Property::NoStaleWrite, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::check_cases;

    const CASES: &str = "
        # a stale write that is accepted is found whatever its token
        hold a:1 3 0 5 100 left 20; hold b:1 4 0 25 120 left 40; wrote a:1 3 10; wrote b:1 4 30; wrote a:1 5 35
        => NoStaleWrite
        # a smaller token that is accepted is found even at its first write
        wrote b:1 4 30; wrote a:1 3 35
        => NoStaleWrite
        # a write that is refused while its holder relies on the lock is found
        hold a:1 3 0 5 100 left 20; wrote a:1 3 10 rejected
        => NoStaleWrite
        # a write that is refused after a grant of another master is by nature
        masters 2 12; hold b:1 4 6 10 60 left 15; hold a:1 3 7 20 119 left 40; wrote b:1 4 12; wrote a:1 3 30 rejected
        => nothing others 2
        # not if there was one master by then
        masters 2 5; hold b:1 4 6 10 60 left 15; hold a:1 3 7 20 119 left 40; wrote b:1 4 12; wrote a:1 3 30 rejected
        => also NoStaleWrite
        # a write that is refused after the lock was forgotten is by nature
        hold a:1 3 0 5 100 left 20; flushed 8 9; wrote a:1 3 10 rejected
        => nothing others 1
        # a stale read that is accepted is found
        read a:1s/3/0 3 10; wrote b:1 4 20; read a:1s/3/0 3 30
        => NoStaleWrite
        # even the first one
        wrote b:1 4 20; read a:1s/3/0 3 30
        => NoStaleWrite
        # a write that is accepted after a read of a later holder is found
        wrote a:1 3 10; read b:1s/4/0 4 20; wrote a:1 3 30
        => NoStaleWrite
        # a read that is refused while its holder relies on the lock is found
        hold a:1s/3/0 3 0 5 100 shares left 20; read a:1s/3/0 3 19 rejected
        => NoStaleWrite
        # and later it is not
        hold a:1s/3/0 3 0 5 100 shares left 20; read a:1s/3/0 3 20 rejected
        => nothing
    ";

    #[test]
    fn stale_accesses_and_refusals_are_found() {
        check_cases(CASES);
    }
}
