//! Shows a lock and its holders as text and as JSON.

use std::{iter, time::Duration};

use rlock_core::{
    LockMode, Token,
    inspect::{Holder, LockInfo, Waiter},
};
use serde_json::{Value, json};

use crate::text::{cut, escaped, time};

/// The most owners that the store shows of a queue.
const MOST_QUEUED: usize = 100;

/// How many columns of a list a leader's value takes at most.
const VALUE_COLUMNS: usize = 40;

/// Shows the holder as `service@host pid`, and what it has announced as a leader in brackets. Everything that is not
/// a holder is in parentheses.
pub(crate) fn holder(info: &LockInfo) -> String {
    let mode = mode(info).map_or_else(String::new, |mode| format!(" ({mode})"));
    let Some(holder) = &info.holder else {
        let no_holder = match () {
            () if is_kept(info) => "(min_hold)",
            () if !info.is_held() => "(other software)",
            () => "(no reply)",
        };
        return format!("{no_holder}{mode}");
    };
    let host = escaped(&holder.host);
    let name = match &holder.service {
        Some(service) => format!("{}@{host}", escaped(service)),
        None => host.into_owned(),
    };
    let retained = if info.retained { " (retained)" } else { "" };
    let value = value(info, VALUE_COLUMNS).map_or_else(String::new, |value| format!(" [{value}]"));
    format!("{name} {}{mode}{retained}{value}", holder.pid)
}

/// Shows what a leader has announced, cut to so many columns.
pub(crate) fn value(info: &LockInfo, columns: usize) -> Option<String> {
    let value = info.holder.as_ref()?.value.as_deref()?;
    Some(cut(&escaped(value), columns).into_owned())
}

/// Describes a mode that is not exclusive, and how many share the lock.
pub(crate) fn mode(info: &LockInfo) -> Option<String> {
    let mode = match info.mode() {
        LockMode::Shared if info.holder_count > 1 => {
            format!("shared, {} holders", info.holder_count)
        }
        LockMode::Shared => "shared".to_owned(),
        LockMode::Permits { of, .. } => {
            format!("{} of {of} permits", info.permits_taken().unwrap_or(1))
        }
        _ => return None,
    };
    Some(mode)
}

/// Describes who has the lock: `` held by `billing` on `node-3` (pid 4711), for 12.3 s ``.
pub(crate) fn taken(info: &LockInfo) -> String {
    let others = match info.holder_count {
        0 | 1 => String::new(),
        2 => ", and by 1 other holder".to_owned(),
        holders => format!(", and by {} other holders", holders - 1),
    };
    match &info.holder {
        Some(holder) => format!("held by {}{others}", escaped(&holder.to_string())),
        None if is_kept(info) => "kept taken by min_hold, and has no holder".to_owned(),
        None if !info.is_held() => "a key of other software".to_owned(),
        None => format!(
            "held by owner {}, which does not reply{others}",
            escaped(&info.owner)
        ),
    }
}

/// Returns the owners of the lock, at most 100.
pub(crate) fn owners(info: &LockInfo) -> Vec<String> {
    let others = info.other_owners.iter().cloned();
    iter::once(info.owner.clone()).chain(others).collect()
}

/// Returns whether the lock has no holder, and `min_hold` keeps it taken.
pub(crate) fn is_kept(info: &LockInfo) -> bool {
    info.owner.starts_with("kept")
}

/// Shows how long the lock has been held.
pub(crate) fn held_for(info: &LockInfo) -> String {
    let holder = info.holder.as_ref();
    holder.map_or_else(|| "-".to_owned(), |holder| time(holder.held_for))
}

/// Shows how long the store keeps the lock without renewal.
pub(crate) fn lease_left(info: &LockInfo) -> String {
    info.ttl.map_or_else(|| "no end".to_owned(), time)
}

/// Returns how many calls of the holder's client wait, plus how many other clients do.
pub(crate) fn waiters(info: &LockInfo) -> usize {
    let local = info.holder.as_ref().map_or(0, |holder| holder.waiter_count);
    local + info.queued_owners.len()
}

/// Shows [`waiters`]. The store shows a part of a long queue.
pub(crate) fn waiters_text(info: &LockInfo) -> String {
    let more = if is_cut(info) { "+" } else { "" };
    format!("{}{more}", waiters(info))
}

/// Returns whether further owners may be in the queue.
pub(crate) fn is_cut(info: &LockInfo) -> bool {
    info.queued_owners.len() >= MOST_QUEUED
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the lock as an object.
pub(crate) fn object(info: &LockInfo) -> Value {
    json!({
        "key": info.key,
        "owner": info.owner,
        "mode": mode_word(info.mode()),
        "permits": match info.mode() {
            LockMode::Permits { of, .. } => Some(of),
            _ => None,
        },
        "permits_taken": info.permits_taken(),
        "holder_count": info.holder_count,
        "other_owners": info.other_owners,
        "depth": info.depth,
        "lease_left_ms": info.ttl.map(millis),
        "token": info.token().map(Token::as_u64),
        "retained": info.retained,
        "waiter_count": waiters(info),
        "queued_owners": info.queued_owners,
        "holder": info.holder.as_ref().map(holder_object),
    })
}

fn mode_word(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Shared => "shared",
        LockMode::Permits { .. } => "permits",
        _ => "exclusive",
    }
}

/// Returns a waiter as an object.
pub(crate) fn waiter_object(waiter: &Waiter) -> Value {
    json!({
        "owner": waiter.owner,
        "service": waiter.service,
        "version": waiter.version,
        "host": waiter.host,
        "pid": waiter.pid,
    })
}

pub(crate) fn holder_object(holder: &Holder) -> Value {
    json!({
        "service": holder.service,
        "version": holder.version,
        "host": holder.host,
        "pid": holder.pid,
        "held_for_ms": millis(holder.held_for),
        "label": holder.label,
        "function": holder.function,
        "trace_id": holder.trace_id,
        "waiter_count": holder.waiter_count,
        "renewals": holder.renewals,
        "revoked_for_ms": holder.revoked_for.map(millis),
        "value": holder.value,
    })
}

/// Says that no hold of a lock is known to have this token.
pub(crate) fn other_token(token: Token, info: &LockInfo) -> String {
    if info.holder_count > 1 {
        format!("no holder that replies has the token {token}")
    } else {
        format!("its current hold has another token than {token}")
    }
}
