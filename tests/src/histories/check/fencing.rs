//! A resource that checks tokens accepts no stale access, and refuses no fresh one.
//!
//! A stale write comes after an access of a later holder, and a stale read after a write of one. The
//! check of that ignores tokens.

use std::collections::HashMap;

use rlock_model::witness::Fence;

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
    let (mut fence, mut written, mut accessed) = (Fence::default(), 0, 0);
    for access in lock.accesses.iter().filter(|access| access.accepted) {
        let next = holders.len() + 1;
        let holder = *holders.entry(&access.owner).or_insert(next);
        let (newest, refused) = match access.kind {
            AccessKind::Write => (accessed, fence.write(access.token)),
            AccessKind::Read => (written, fence.read(access.token)),
        };
        let stale = if holder < newest {
            "after a later holder's"
        } else if refused.is_some() {
            "with a smaller token than another before"
        } else {
            accessed = accessed.max(holder);
            if access.kind == AccessKind::Write {
                written = written.max(holder);
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
        findings.other(is_excused, Property::NoStaleWrite, what);
    }
}
