//! The bounds of options, and the errors for what lies outside.

use std::{fmt::Debug, time::Duration};

use tokio::runtime::Handle;

use crate::{
    drivers::missing,
    error::LockError,
    lease::{MAX_LEASE, MAX_WAIT, MIN_LEASE},
    options::{Replicas, Wait},
    redact::redacted,
};

fn invalid(option: &'static str, value: impl Debug, reason: &str) -> LockError {
    LockError::InvalidOption {
        option,
        value: format!("{value:?}"),
        reason: reason.to_owned(),
    }
}

/// Refuses a runtime that is known to lack what the background needs.
pub(crate) fn runtime(runtime: &Handle, needs_io: bool) -> Result<(), LockError> {
    match missing(runtime, needs_io) {
        Some(missing) => Err(LockError::InvalidOption {
            option: "runtime",
            value: format!("a runtime without {missing}"),
            reason: "build it with `enable_all`, or leave the option out: the client then has a thread of its own"
                .to_owned(),
        }),
        None => Ok(()),
    }
}

/// Returns the error for a URL, which shows the URL without its secrets.
pub(crate) fn invalid_url(url: &str, reason: String) -> LockError {
    LockError::InvalidOption {
        option: "url",
        value: format!("`{}`", redacted(url)),
        reason,
    }
}

/// The error for a list of URLs; `value` shows nothing of a password.
pub(crate) fn invalid_urls(value: String, reason: &str) -> LockError {
    LockError::InvalidOption {
        option: "urls",
        value,
        reason: reason.to_owned(),
    }
}

/// The most keys that one call may acquire. A script with more keys would block its server for
/// longer than a few milliseconds.
const MOST_KEYS: usize = 1_000;

/// Checks the number of keys of one call.
pub(crate) fn keys(number: usize) -> Result<(), LockError> {
    match number {
        0 => Err(LockError::InvalidKey {
            key: String::new(),
            reason: "the list of keys is empty; do not lock where there is nothing to lock"
                .to_owned(),
        }),
        1..=MOST_KEYS => Ok(()),
        _ => Err(LockError::InvalidOption {
            option: "keys",
            value: format!("({number} keys)"),
            reason: format!(
                "at most {MOST_KEYS} keys are taken together; lock what they have in common instead"
            ),
        }),
    }
}

pub(crate) fn lease(option: &'static str, lease: Duration) -> Result<(), LockError> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(invalid(
        option,
        lease,
        "a lease is between 10ms and 24h; the watchdog renews it for as long as the lock is held",
    ))
}

pub(crate) fn wait(option: &'static str, wait: Wait) -> Result<(), LockError> {
    match wait {
        Wait::For(wait) if wait > MAX_WAIT => Err(invalid(
            option,
            wait,
            "a wait is at most 366 days; `wait_forever` has no bound",
        )),
        _ => Ok(()),
    }
}

pub(crate) fn max_hold(max_hold: Option<Duration>) -> Result<(), LockError> {
    match max_hold {
        Some(Duration::ZERO) => Err(invalid(
            "max_hold",
            Duration::ZERO,
            "a lock that is held takes some time",
        )),
        _ => Ok(()),
    }
}

pub(crate) fn at_least(at_least: Option<Duration>) -> Result<(), LockError> {
    match at_least {
        Some(at_least) if at_least > MAX_LEASE => Err(invalid(
            "at_least",
            at_least,
            "a lock stays taken for 24h at the most",
        )),
        _ => Ok(()),
    }
}

pub(crate) fn retain(retain: Duration) -> Result<(), LockError> {
    if retain <= MAX_LEASE {
        return Ok(());
    }
    Err(invalid(
        "retain",
        retain,
        "a lock is retained for 24h at the most",
    ))
}

pub(crate) fn timeout(option: &'static str, timeout: Duration) -> Result<(), LockError> {
    const MOST: Duration = Duration::from_secs(60 * 60);
    if timeout >= Duration::from_millis(1) && timeout <= MOST {
        return Ok(());
    }
    Err(invalid(option, timeout, "a time-out is between 1ms and 1h"))
}

pub(crate) fn replicas(replicas: Option<Replicas>) -> Result<(), LockError> {
    match replicas {
        Some(Replicas { least: 0, .. }) => Err(invalid(
            "replicas",
            0,
            "a lock that no replica needs to have is what there is without `replicas`",
        )),
        Some(Replicas { within, .. }) => timeout("replicas", within),
        None => Ok(()),
    }
}

pub(crate) fn no_replicas(replicas: Option<Replicas>) -> Result<(), LockError> {
    match replicas {
        Some(Replicas { least, .. }) => Err(invalid(
            "replicas",
            least,
            "neither the embedded store nor a quorum has any; it is for one server, for the master that Sentinels know, and for a Redis Cluster",
        )),
        None => Ok(()),
    }
}

pub(crate) fn fence_retention(retention: Duration) -> Result<(), LockError> {
    const MOST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
    if (MAX_LEASE..=MOST).contains(&retention) {
        return Ok(());
    }
    Err(invalid(
        "fence_retention",
        retention,
        "fencing tokens are kept from 24h, the longest lease, to 366 days",
    ))
}

pub(crate) fn prefix(prefix: &str) -> Result<(), LockError> {
    const MOST: usize = 256;
    if prefix.contains(['{', '}']) {
        let reason = "braces in the prefix would move every lock to one Redis Cluster slot";
        return Err(invalid("prefix", prefix, reason));
    }
    if prefix.len() > MOST {
        return Err(invalid(
            "prefix",
            prefix.len(),
            "a prefix is at most 256 bytes long",
        ));
    }
    Ok(())
}
