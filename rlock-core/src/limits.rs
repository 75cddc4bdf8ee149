//! The smallest and largest values of options, the options that exclude each other, and the errors for both.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use rlock_proto::{
    escape_control::MOST_SHOWN,
    key::MAX_KEY_BYTES,
    lease::{MAX_LEASE, MAX_WAIT, MIN_LEASE},
    mode::LockMode,
    options::{LockOptions, Wait},
};

use crate::{
    error::LockError,
    options::{Identity, Replicas},
    wording::duration,
};

/// The most values of the label `lock`, and the most names of elections. All further ones share [`OTHER_LABEL`].
pub(crate) const MOST_LABELS: usize = 200;
pub(crate) const OTHER_LABEL: &str = "other";

/// The largest number of different keys of one call. A script with more keys would block its server for
/// longer than a few milliseconds.
const MOST_KEYS: usize = 1_000;
const LONGEST_PREFIX: usize = 256;
/// The longest value that a leader announces, in bytes.
pub(crate) const MAX_VALUE: usize = 1024;
/// The longest pattern of keys: each byte of a key may be escaped.
pub(crate) const LONGEST_PATTERN: usize = MAX_KEY_BYTES * 2;

#[inline]
fn check(
    is_valid: bool,
    option: &'static str,
    value: impl Display,
    reason: &str,
) -> Result<(), LockError> {
    if is_valid {
        return Ok(());
    }
    Err(LockError::invalid_option(option, value.to_string(), reason))
}

#[inline]
fn within(
    option: &'static str,
    value: Duration,
    bounds: RangeInclusive<Duration>,
    reason: &str,
) -> Result<(), LockError> {
    if bounds.contains(&value) {
        return Ok(());
    }
    check(false, option, duration(value), reason)
}

/// The names of the options that both a lock and its client have: lease, wait, retain and watchdog.
pub(crate) type Names = [&'static str; 4];
pub(crate) const OF_LOCK: Names = ["lease", "wait", "retain", "watchdog"];
pub(crate) const OF_CLIENT: Names = [
    "default_lease",
    "default_wait",
    "default_retain",
    "default_watchdog",
];

/// Checks the options of a lock, or those that a client has for its locks.
pub(crate) fn lock(
    [lease, wait, retain, watchdog]: Names,
    options: &LockOptions,
) -> Result<(), LockError> {
    self::lease(lease, options.lease)?;
    self::wait(wait, options.wait)?;
    let max_hold = options.max_hold.unwrap_or(Duration::MAX);
    let reason = "it must be longer than 0s; leave it out for no limit";
    check(!max_hold.is_zero(), "max_hold", "0s", reason)?;
    let zero_to_day = Duration::ZERO..=MAX_LEASE;
    let min_hold = options.min_hold.unwrap_or_default();
    let reason = "a lock is kept for 24h at most; use a key for each run of a rarer job";
    within("min_hold", min_hold, zero_to_day.clone(), reason)?;
    if max_hold < min_hold {
        let min_hold = duration(min_hold);
        let reason = format!(
            "it is shorter than `min_hold`, {min_hold}; raise `max_hold` or lower `min_hold`"
        );
        return check(false, "max_hold", duration(max_hold), &reason);
    }
    let reason = "a lock is retained for 24h at most; each call of this client restarts that time";
    within(retain, options.retain, zero_to_day, reason)?;
    if options.watchdog || options.retain.is_zero() {
        return Ok(());
    }
    let reason = format!(
        "a lock is retained by renewals, which `{watchdog}(false)` turns off; leave one of the two out"
    );
    check(false, retain, duration(options.retain), &reason)
}

/// Checks the options that a mode excludes.
pub(crate) fn mode(options: &LockOptions, needs_majority: bool) -> Result<(), LockError> {
    let LockMode::Permits { take, of: permits } = options.mode else {
        return Ok(());
    };
    let reason = "a call takes at least 1 permit; leave `take` out to take one";
    check(take > 0, "take", take, reason)?;
    let reason = "there are no permits to take: set `permits` to their number";
    check(take == 1 || permits > 0, "take", take, reason)?;
    let reason = "it must be at least 1, and `take` needs it, too; for an exclusive lock, leave `permits` out";
    check(permits > 0, "permits", permits, reason)?;
    let reason = "there are fewer permits than that; raise `permits` or lower `take`";
    check(take <= permits, "take", take, reason)?;
    let reason = match permits {
        1 => "a quorum has no permits; leave `permits` out for an exclusive lock",
        _ => {
            "each of several holders could have a majority of the servers; use one server, Sentinels or a cluster"
        }
    };
    check(!needs_majority, "permits", permits, reason)?;
    let reason = "a permit is not retained: each call has its own; leave `retain` or `permits` out";
    check(
        options.retain.is_zero(),
        "retain",
        duration(options.retain),
        reason,
    )
}

pub(crate) fn lease(option: &'static str, lease: Duration) -> Result<(), LockError> {
    let reason =
        "a lease is between 10ms and 24h; the watchdog renews it for as long as the lock is held";
    within(option, lease, MIN_LEASE..=MAX_LEASE, reason)
}

pub(crate) fn wait(option: &'static str, wait: Wait) -> Result<(), LockError> {
    let Wait::For(wait) = wait else {
        return Ok(());
    };
    let reason = "a wait is at most 366 days; `wait_forever` has no limit";
    within(option, wait, Duration::ZERO..=MAX_WAIT, reason)
}

/// Checks the window of a tick. A call may come a window before its tick, and its lease lasts until two windows after it.
pub(crate) fn window(window: Duration) -> Result<(), LockError> {
    let reason = "a window is between 1s and 8h, because a lock is kept for three windows, and for 24h at most";
    within(
        "window",
        window,
        Duration::from_secs(1)..=MAX_LEASE / 3,
        reason,
    )
}

pub(crate) fn tick(is_valid: bool, tick: impl Display, reason: &str) -> Result<(), LockError> {
    check(is_valid, "tick", tick, reason)
}

pub(crate) fn timeout(option: &'static str, timeout: Duration) -> Result<(), LockError> {
    let bounds = Duration::from_millis(1)..=Duration::from_secs(60 * 60);
    within(option, timeout, bounds, "a time-out is between 1ms and 1h")
}

pub(crate) fn replicas(replicas: Option<Replicas>) -> Result<(), LockError> {
    let Some(Replicas { least, within }) = replicas else {
        return Ok(());
    };
    let reason = "at least one replica is required; leave the option out to require none";
    check(least > 0, "wait_for_replicas", least, reason)?;
    timeout("wait_for_replicas", within)
}

pub(crate) fn no_replicas(replicas: Option<Replicas>) -> Result<(), LockError> {
    let least = replicas.map_or(0, |replicas| replicas.least);
    check(
        replicas.is_none(),
        "wait_for_replicas",
        least,
        "the embedded store and a quorum have no replicas, and Postgres waits for the standbys in its \
         `synchronous_standby_names` by itself; use one server, Sentinels or a cluster",
    )
}

/// How long a server keeps a fence by default, after the lease of its grant. The clock of a server rarely steps back by more.
pub(crate) const SHORTEST_FENCE_RETENTION: Duration = Duration::from_secs(60);

pub(crate) fn fence_retention(retention: Duration) -> Result<(), LockError> {
    within(
        "fence_retention",
        retention,
        SHORTEST_FENCE_RETENTION..=Duration::from_secs(366 * 24 * 60 * 60),
        "a fence is kept for 1m to 366 days after the lease; the default is 1m",
    )
}

pub(crate) fn prefix(option: &'static str, prefix: &str) -> Result<(), LockError> {
    let has_braces = prefix.contains(['{', '}']);
    let reason =
        "braces in the prefix would put every lock into one slot of a cluster; leave them out";
    check(!has_braces, option, format_args!("{prefix:?}"), reason)?;
    let is_foreign = |c: char| c.is_whitespace() || c.is_control();
    let reason = "white space or a control character in the prefix makes other keys than those of clients without it; \
                  leave it out";
    check(
        !prefix.contains(is_foreign),
        option,
        format_args!("{prefix:?}"),
        reason,
    )?;
    let length = prefix.len();
    let reason = "a prefix is at most 256 bytes long";
    check(length <= LONGEST_PREFIX, option, length, reason)
}

pub(crate) fn service(identity: &Identity) -> Result<(), LockError> {
    let reason = "the name and the version have 1 to 256 characters; leave the option out if there is no name";
    for text in [&identity.service, &identity.version].into_iter().flatten() {
        let is_valid = (1..=MOST_SHOWN).contains(&text.chars().count());
        check(is_valid, "service", format_args!("{text:?}"), reason)?;
    }
    Ok(())
}

pub(crate) fn pattern(pattern: &str) -> Result<(), LockError> {
    let length = pattern.len();
    let reason = "a pattern has at most 2048 bytes, and a key 1024";
    let value = format_args!("({length} bytes)");
    check(length <= LONGEST_PATTERN, "pattern", value, reason)
}

pub(crate) fn keys(number: usize) -> Result<(), LockError> {
    if number == 0 {
        let reason = "the list of keys is empty; do not lock where there is nothing to lock";
        return Err(LockError::invalid_key("", reason));
    }
    let value = format_args!("({number} different keys)");
    let reason = "at most 1000 keys are acquired together; lock what they have in common instead";
    check(number <= MOST_KEYS, "keys", value, reason)
}
