//! Classifies the errors of a server: whether to repeat the request, and whether it may have been executed.

use std::{error::Error, fmt, sync::Arc};

use redis::{
    ErrorKind, RedisError, RedisResult,
    ServerErrorKind::{Ask, CrossSlot, Moved},
};

use rlock_proto::few::Few;

use crate::store::StoreError;

/// Errors after which the same request may succeed a moment later.
const PASSING: [&str; 6] = [
    "BUSY",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    // The master was demoted while a request waited for replicas.
    "UNBLOCKED",
    // The server lost the script between two requests. The next attempt loads it again.
    "NOSCRIPT",
];

/// How often a request is repeated over the next connection, because the callers' connection and that of the background may
/// both have ended.
pub(in crate::store) const MOST_REPEATS: usize = 2;

/// Errors that end when the nodes of a cluster agree on the master of a slot.
const SETTLING: [&str; 6] = [
    "TRYAGAIN",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "READONLY",
    // Inside a script: some keys of a lock were moved to another node of the cluster.
    NON_LOCAL,
];

/// The text of an error without a code.
const NON_LOCAL: &str = "access a non local key";

/// The error of a node that does not have the lock: another node of its cluster has it, or will have it.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0}; this server is a node of a Redis Cluster, and a lock may be at any of them: connect with \
     `redis-cluster://host:port,host:port,…`"
)]
pub(in crate::store) struct Elsewhere(pub(in crate::store) RedisError);

/// The error of a server that is a replica, which executes no change.
#[derive(Debug, thiserror::Error)]
#[error("the server is a replica (READONLY); connect to its master")]
pub(super) struct IsReplica;

/// The error of a server that the Sentinels have replaced.
#[derive(Debug, thiserror::Error)]
#[error("the Sentinels now name another master")]
pub(super) struct IsFormerMaster;

/// The error of a server that lets a script touch only the keys that it declares. Ours declare only the locks, and derive
/// all other keys.
#[derive(Debug, thiserror::Error)]
#[error("{0}; {DECLARED_ONLY}")]
struct Undeclared(RedisError);

pub(in crate::store) const DECLARED_ONLY: &str = "this server lets a script touch only the keys that it declares: start Dragonfly with \
    `--default_lua_flags=allow-undeclared-keys`, and set the parameter `script_check_enable` of a Tair instance to 0";

/// The refusal of a server, in words: what is wrong, and then what to do.
#[derive(Debug)]
struct Refusal(RedisError);

/// Our words for errors that servers describe at length, or not for the users of locks.
const WORDS: [(&str, &str); 7] = [
    (
        "OOM",
        "the server is out of memory (OOM: `maxmemory` is reached, and nothing can be evicted); raise \
         `maxmemory`, or delete data",
    ),
    (
        "MISCONF",
        "the server refuses writes, because it cannot save its data (MISCONF); its log has the reason",
    ),
    (
        "NOREPLICAS",
        "the server refuses writes, because too few replicas are connected (NOREPLICAS); see `min-replicas-to-write`",
    ),
    (
        "READONLY",
        "the server is a replica (READONLY); connect to its master",
    ),
    (
        "WRONGTYPE",
        "a key of the lock holds a value of other software, which is not a lock (WRONGTYPE); delete it on the server, or \
         use another `prefix`",
    ),
    ("NOAUTH", "the server requires a password (NOAUTH)"),
    (
        "WRONGPASS",
        "the server does not accept this user and password (WRONGPASS)",
    ),
];

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_words(&self.0))
    }
}

impl Error for Refusal {}

fn in_words(error: &RedisError) -> String {
    let known = WORDS.iter().find(|(code, _)| has_code(error, code));
    known.map_or_else(
        || without_script(&without_kind(error)).to_owned(),
        |(_, words)| (*words).to_owned(),
    )
}

/// Removes the place in a script at which a command failed. Redis 7 adds it behind the reason, and Redis 6 in front of it.
fn without_script(said: &str) -> &str {
    match said.split_once(" script: ") {
        Some((reason, place)) if place.contains("@user_script") => reason,
        _ => said.rsplit_once("@user_script").map_or(said, |(_, rest)| {
            rest.trim_start_matches(|c: char| c.is_ascii_digit() || ": -".contains(c))
        }),
    }
}

/// Advice about a certificate for another host than the one that the client connects to.
const WRONG_NAME: &str = "the certificate has to name the host that the client connects to, which is the one in the URL, or \
    the one that a cluster or the Sentinels announce: for a cluster, set `cluster-announce-hostname` and \
    `cluster-preferred-endpoint-type hostname`; for Sentinels, `sentinel announce-hostnames yes`";

/// Advice about a server that has never replied, because it or a proxy may ignore `HELLO`, or close the connection.
pub(in crate::store) const NO_RESP3: &str =
    "; if it runs behind a proxy without RESP3, add `?protocol=resp2` to the URL";

pub(in crate::store) fn classify(error: RedisError) -> StoreError {
    let (transient, maybe_executed) = match error.kind() {
        // An unsent request and a lost reply cause the same error. A truncated reply does not parse.
        ErrorKind::Io | ErrorKind::Parse => (true, true),
        // The server refused the request. Scripts fail only before they write.
        ErrorKind::Server(_) | ErrorKind::Extension => (is_passing(&error), false),
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => (false, false),
        _ => (false, true),
    };
    StoreError {
        transient,
        maybe_executed,
        is_refusal: matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension),
        granted: Few::new(),
        source: match error.kind() {
            ErrorKind::Server(Moved | Ask | CrossSlot) => Arc::new(Elsewhere(error)),
            _ if is_undeclared(&error) => Arc::new(Undeclared(error)),
            ErrorKind::Server(_) | ErrorKind::Extension => Arc::new(Refusal(error)),
            _ => Arc::new(error),
        },
    }
}

/// Returns whether the same request may succeed as soon as the nodes of a cluster have agreed.
pub(in crate::store) fn is_settling(error: &StoreError) -> bool {
    has_one_of(error, &SETTLING)
}

/// Returns whether the keys of a request are at two nodes of the cluster, because their slot migrates.
pub(in crate::store) fn is_split(error: &StoreError) -> bool {
    has_one_of(error, &["TRYAGAIN", NON_LOCAL])
}

/// Returns whether a replica refused the request.
pub(super) fn is_of_replica(error: &StoreError) -> bool {
    has_one_of(error, &["READONLY"])
}

/// Returns whether the server's user may not call the command.
pub(super) fn is_refused(error: &StoreError) -> bool {
    has_one_of(error, &["NOPERM"])
}

/// Returns whether a key of a lock has a value of another type.
pub(super) fn is_foreign(error: &StoreError) -> bool {
    has_one_of(error, &["WRONGTYPE"])
}

/// Returns whether the next connection may serve the request: this one has ended, or its login did.
pub(in crate::store) fn may_be_repeated(error: &StoreError) -> bool {
    let of_connection = error.source.downcast_ref::<RedisError>();
    of_connection.is_some_and(ends_connection)
        || error.transient && has_one_of(error, &["NOAUTH", "WRONGPASS"])
}

fn has_one_of(error: &StoreError, codes: &[&str]) -> bool {
    let refusal = error.source.downcast_ref::<Refusal>();
    refusal.is_some_and(|Refusal(error)| codes.iter().any(|code| has_code(error, code)))
}

/// Returns the error for an invalid reply.
pub(in crate::store) fn unexpected(error: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    StoreError::new(false, true, error)
}

/// Returns the error for a request that was not sent and must not be repeated.
pub(in crate::store) fn not_sent(why: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    StoreError::new(false, false, why)
}

/// Returns the error for a request that was not sent and may succeed a moment later.
pub(in crate::store) fn not_yet(why: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    StoreError::new(true, false, why)
}

pub(in crate::store) fn timed_out(waited: String) -> RedisError {
    RedisError::from((ErrorKind::Io, "time-out", waited))
}

/// Classifies an error of an attempt to connect, and adds the way out if it is known. `login` explains where the URL
/// contains user and password.
pub(in crate::store) fn classify_connect(error: RedisError, login: &'static str) -> StoreError {
    let said = without_kind(&error);
    // An error without a source comes from this client. A missing socket counts as dropped, too.
    let is_dropped = error.is_connection_dropped() && error.source().is_some();
    let is_closed = is_dropped && !error.is_connection_refusal() && !said.contains("No such file");
    if is_closed || said.contains("max number of clients") {
        return not_yet(format!(
            "{said}; the server closed the connection, maybe because of `maxclients`, `protected-mode` or TLS: its \
             log has the reason{NO_RESP3}"
        ));
    }
    let mut untrusted = ["certificate: UnknownIssuer", "certificate: BadSignature"].into_iter();
    let way_out = if wants_password(&error) {
        return not_sent(format!("{}; {login}", in_words(&error)));
    } else if untrusted.any(|reason| said.contains(reason)) {
        "have the system trust the authority that signed the server's certificate, or name it by `tls_ca` or in the \
         environment variable `SSL_CERT_FILE`"
    } else if said.contains("certificate not valid for name") {
        WRONG_NAME
    } else if said.contains("unknown command") && said.contains("SENTINEL") {
        "this server is not a Sentinel: connect to it by `redis://host:port`"
    } else if error.kind() == ErrorKind::Parse && said.contains('\n') {
        // redis-rs describes a reply that does not parse in several lines, and a wrong type in one.
        return not_yet("the server does not speak the Redis protocol on this port");
    } else {
        return classify(error);
    };
    not_sent(format!("{}; {way_out}", said.trim_end_matches('.')))
}

/// Returns the message of the server or the system, without the name of the error's kind, which redis-rs adds.
pub(in crate::store) fn without_kind(error: &RedisError) -> String {
    let text = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => (error.to_string()).replacen(&format!(" - {:?}", error.kind()), "", 1),
    };
    text.trim_end().to_owned()
}

/// Returns whether the server may execute the same command a moment later.
fn is_passing(error: &RedisError) -> bool {
    let mut passing = PASSING.iter().chain(&SETTLING);
    passing.any(|code| has_code(error, code))
}

/// Returns whether the server refuses nearly all commands, because a script runs.
pub(super) fn is_busy(error: &RedisError) -> bool {
    has_code(error, "BUSY")
}

/// Returns whether the server refuses the login or requires one.
pub(super) fn wants_password(error: &RedisError) -> bool {
    let is_refused = error.kind() == ErrorKind::AuthenticationFailed;
    is_refused || has_code(error, "NOAUTH") || has_code(error, "WRONGPASS")
}

/// Returns whether the server refused a script because of a key that it does not declare: Dragonfly, or the proxy of Tair.
pub(in crate::store) fn is_undeclared(error: &RedisError) -> bool {
    let said = without_kind(error);
    ["undeclared key", "passed using the KEYS array"]
        .iter()
        .any(|text| said.contains(text))
}

/// Returns whether the server refused the protocol of a connection.
pub(super) fn refuses_protocol(error: &RedisError) -> bool {
    let refused = matches!(
        error.kind(),
        ErrorKind::RESP3NotSupported | ErrorKind::Server(_) | ErrorKind::Extension
    );
    refused && !wants_password(error) && !is_busy(error)
}

/// Returns whether the server, or a command inside a script, replied with this code. Redis 6 puts the
/// latter into the text of a general error, behind a hyphen.
fn has_code(error: &RedisError, code: &str) -> bool {
    error.code() == Some(code)
        || error.detail().is_some_and(|detail| {
            let mut words = detail.split([' ', ':']);
            words.any(|word| word.strip_prefix('-').unwrap_or(word) == code)
                || code == NON_LOCAL && detail.contains(code)
        })
}

/// Returns whether the server refused a change, because it is a replica.
pub(super) fn is_read_only(error: &RedisError) -> bool {
    has_code(error, "READONLY")
}

/// Returns whether the connection has ended with this error.
fn ends_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_io_error()
}

/// Returns whether another connection may succeed where this one failed.
pub(super) fn wants_reconnect(error: &RedisError) -> bool {
    ends_connection(error) || error.kind() == ErrorKind::Parse || is_read_only(error)
}

/// Returns `None` if the server refuses the command. Returns an error if the connection failed, or if the server is
/// busy. A connection that is set up while a script runs would never receive notifications.
pub(super) fn unless_refused<T>(outcome: RedisResult<T>) -> RedisResult<Option<T>> {
    let has_failed =
        |error: &RedisError| wants_reconnect(error) || wants_password(error) || is_busy(error);
    match outcome {
        Err(error) if has_failed(&error) => Err(error),
        outcome => Ok(outcome.ok()),
    }
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn answered(line: &str) -> RedisError {
        let value = parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an answer");
        value.extract_error().expect_err("an error")
    }

    #[test]
    fn a_refusal_says_what_is_wrong_and_names_no_place_in_a_script() {
        let place = " script: 0a1b2c, on @user_script:295.";
        for (line, said) in [
            (
                format!("OOM command not allowed when used memory > 'maxmemory'.{place}"),
                WORDS[0].1,
            ),
            (
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                 <user> <pass> option can be used"
                    .to_owned(),
                "the server requires a password (NOAUTH)",
            ),
            (
                format!("NOPERM this user has no permissions{place}"),
                "NOPERM this user has no permissions",
            ),
            (
                "ERR Error running script (call to f_9a): @user_script:24: @user_script: 24: -NOPERM no permission"
                    .to_owned(),
                "NOPERM no permission",
            ),
        ] {
            assert_eq!(classify(answered(&line)).to_string(), said);
        }
    }

    #[test]
    fn a_connection_that_the_system_gave_up_is_replaced_and_the_request_repeated() {
        let error = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        assert!(wants_reconnect(&error));
        assert!(may_be_repeated(&classify(error)));
    }

    /// Redis 6.2 words the refusal of a command inside a script differently.
    #[test]
    fn transient_errors_are_known_inside_scripts_too_and_undeclared_keys_name_the_switch() {
        for line in [
            "READONLY You can't write against a read only replica.",
            "ERR Error running script (call to f_9a): @user_script:24: @user_script: 24: -READONLY You \
             can't write against a read only replica. ",
            "@user_script: 24: -READONLY You can't write against a read only replica. ",
        ] {
            let error = answered(line);
            assert!(wants_reconnect(&error), "{line}: {error:?}");
            let error = classify(error);
            assert!(
                error.transient && !error.maybe_executed,
                "{line}: {error:?}"
            );
        }
        for line in [
            "ERR script tried accessing undeclared key",
            "ERR Error running script (call to f_9a): @user_script:24: script tried accessing undeclared key",
            "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array",
        ] {
            let refused = classify(answered(line));
            assert!(!refused.transient && !refused.maybe_executed, "{line}");
            let said = refused.to_string();
            let switches = [
                "--default_lua_flags=allow-undeclared-keys",
                "script_check_enable",
            ];
            assert!(
                switches.iter().all(|switch| said.contains(switch)),
                "{said}"
            );
        }
        let refused = classify(answered("NOPERM this user has no permissions"));
        assert!(!refused.transient && !refused.maybe_executed);
    }
}
