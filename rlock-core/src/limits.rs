//! The bounds of options, and the errors for what lies outside.

use std::{fmt::Debug, time::Duration};

use crate::{
    error::LockError,
    lease::{MAX_LEASE, MAX_WAIT, MIN_LEASE},
    options::{Replicas, Wait},
};

fn invalid(option: &'static str, value: impl Debug, reason: &str) -> LockError {
    LockError::InvalidOption {
        option,
        value: format!("{value:?}"),
        reason: reason.to_owned(),
    }
}

/// The error for a URL. Shows no more of it than its scheme, because the rest may hold a password; so
/// may what stands before a colon, where the scheme was forgotten.
pub(crate) fn invalid_url(url: &str, reason: String) -> LockError {
    const KNOWN: [&str; 11] = [
        "memory",
        "redis",
        "rediss",
        "redis-sentinel",
        "rediss-sentinel",
        "redis-cluster",
        "rediss-cluster",
        "unix",
        "redis+unix",
        "valkey",
        "valkeys",
    ];
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let scheme = url.split_once(':').filter(|(scheme, rest)| {
        let looks_like_one = rest.starts_with("//") && scheme.chars().all(letters);
        KNOWN.contains(scheme) || looks_like_one && !url.contains('@')
    });
    LockError::InvalidOption {
        option: "url",
        value: match scheme {
            Some((scheme, _)) => format!("`{scheme}:…`"),
            None if url.is_empty() => "``".to_owned(),
            None => "`…`".to_owned(),
        },
        reason,
    }
}

/// The error for a list of URLs; `value` shows nothing of a password.
#[cfg(feature = "redis")]
pub(crate) fn invalid_urls(value: String, reason: &str) -> LockError {
    LockError::InvalidOption {
        option: "urls",
        value,
        reason: reason.to_owned(),
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
