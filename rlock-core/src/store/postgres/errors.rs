//! Classifies the errors of a Postgres server: whether to repeat the request, and whether it may have been executed.

use std::{error::Error as _, iter::successors};

use tokio_postgres::{
    Error,
    error::{DbError, Severity, SqlState},
};

use crate::store::StoreError;

/// The classes of errors that may pass: a lack of resources, a roll-back, and what an operator did.
const PASSING: [&str; 4] = ["53", "40", "55", "57"];

/// Why a server grants no locks although it replies.
const READ_ONLY: &str = "the server is a standby or read-only; connect to the primary (the URL may name several hosts: \
     `a,b`), and check `default_transaction_read_only`";

/// How tokio-postgres describes such a server.
const NO_WRITES: &str = "does not allow writes";

/// The classes and codes of errors with which a session ends: a lost connection, an operator's shutdown, and the server's time-outs
/// of idle and of long transactions, whose errors a pooler passes on.
const ENDING: [&str; 4] = ["08", "57P", "25P03", "25P04"];

/// Our words for errors that the server describes for the authors of statements.
const WORDS: [(&SqlState, &str); 6] = [
    (&SqlState::READ_ONLY_SQL_TRANSACTION, READ_ONLY),
    (
        &SqlState::LOCK_NOT_AVAILABLE,
        "another transaction has locked the row of this lock; end transactions that stay open (`pg_stat_activity`)",
    ),
    (
        &SqlState::CHARACTER_NOT_IN_REPERTOIRE,
        "Postgres stores no text with a NUL, and the database must have the encoding UTF8; encode the key with \
         `rlock_core::escape`",
    ),
    (
        &SqlState::UNDEFINED_FUNCTION,
        "the schema of the locks was dropped; the client creates it again if its role may",
    ),
    (
        &SqlState::UNDEFINED_TABLE,
        "the schema of the locks was dropped; the client creates it again if its role may",
    ),
    (
        &SqlState::INVALID_SCHEMA_NAME,
        "the schema of the locks was dropped; the client creates it again if its role may",
    ),
];

const KEEP_SESSIONS: &str =
    "let `direct` lead to the server itself, or to a pooler with `pool_mode = session`";

/// What to do about errors that the server describes well.
const WAYS_OUT: [(&SqlState, &str); 5] = [
    (
        &SqlState::INSUFFICIENT_PRIVILEGE,
        "grant the role what `rlock postgres schema` prints",
    ),
    (
        &SqlState::INVALID_PASSWORD,
        "correct the user and the password, of which a URL percent-encodes `:/?#@%`",
    ),
    (
        &SqlState::INVALID_CATALOG_NAME,
        "create it, or correct the name behind the `/` of the URL",
    ),
    // The client prepares statements only if no pooler is found, or `direct` promises one that keeps sessions.
    (&SqlState::DUPLICATE_PSTATEMENT, KEEP_SESSIONS),
    (&SqlState::INVALID_SQL_STATEMENT_NAME, KEEP_SESSIONS),
];

/// The error of a commit with notifications that has waited too long for another such commit.
const SLOW_COMMITS: &str = "the commit of another notification takes long; look at the disk of the server, and at the standby that it \
                            waits for";

/// Returns the error of a request.
pub(super) fn classify(error: &Error) -> StoreError {
    match error.as_db_error() {
        None => StoreError::ambiguous(text(error)),
        Some(refusal) if ends_session(error) => StoreError::ambiguous(words(refusal)),
        Some(refusal) => rolled_back(error, refusal),
    }
}

/// Returns the error of a request that the server rolled back, or of a login that it refused.
fn rolled_back(error: &Error, refusal: &DbError) -> StoreError {
    let code = refusal.code();
    let passes = PASSING.iter().any(|class| code.code().starts_with(class));
    let is_transient =
        passes || *code == SqlState::READ_ONLY_SQL_TRANSACTION || lacks_schema(error);
    StoreError {
        is_refusal: true,
        ..StoreError::new(is_transient, false, words(refusal))
    }
}

/// Returns the error of an attempt to connect, which executed nothing.
pub(super) fn classify_connect(error: &Error) -> StoreError {
    match error.as_db_error() {
        // A login that is refused is fatal, too.
        Some(refusal) if is_ending(refusal.code(), None) => {
            return StoreError::ambiguous(words(refusal)).not_executed();
        }
        Some(refusal) => return rolled_back(error, refusal),
        None => {}
    }
    let text = text(error);
    if text.contains(NO_WRITES) {
        return StoreError::new(true, false, READ_ONLY);
    }
    // Another authority would have to be trusted.
    let is_foreign = text.contains("invalid peer certificate");
    StoreError::new(!is_foreign, false, text)
}

/// Returns the error of an attempt to end the client's former session.
pub(super) fn classify_end(error: &Error) -> StoreError {
    let failed = classify_connect(error);
    if !is_denied(error) {
        return failed;
    }
    let source = "this role may not end the client's former session, which is silent and has another role; grant it \
                  `pg_signal_backend`, or the other role";
    StoreError {
        is_refusal: true,
        ..StoreError::new(true, false, source)
    }
}

/// Returns whether the session has ended with this error.
fn ends_session(error: &Error) -> bool {
    let refusal = error.as_db_error();
    refusal.is_none_or(|refusal| is_ending(refusal.code(), refusal.parsed_severity()))
}

fn is_ending(code: &SqlState, severity: Option<Severity>) -> bool {
    // A server that cannot write its log to the disk panics, although the commit may be in it.
    matches!(severity, Some(Severity::Fatal | Severity::Panic))
        || ENDING.iter().any(|ending| code.code().starts_with(ending))
}

/// Returns whether the request may succeed over the next session: because this one has ended, because the next one may lead to a
/// server that takes writes, or because it creates a schema that was dropped.
pub(super) fn needs_session(error: &Error) -> bool {
    ends_session(error)
        || lacks_schema(error)
        || error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Returns whether the schema, or what it has to contain, was dropped. The next session creates it again.
fn lacks_schema(error: &Error) -> bool {
    let of_schema = [
        &SqlState::UNDEFINED_FUNCTION,
        &SqlState::UNDEFINED_TABLE,
        &SqlState::INVALID_SCHEMA_NAME,
    ];
    error.code().is_some_and(|code| of_schema.contains(&code))
}

pub(super) fn is_denied(error: &Error) -> bool {
    error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE)
}

fn words(refusal: &DbError) -> String {
    let known = WORDS.iter().find(|(code, _)| *code == refusal.code());
    let words = known.map_or(refusal.message(), |(_, words)| words);
    // Unlike a commit, a statement that waits for a row is inside a function.
    let is_commit = *refusal.code() == SqlState::LOCK_NOT_AVAILABLE && refusal.where_().is_none();
    let words = if is_commit { SLOW_COMMITS } else { words };
    let way_out = WAYS_OUT.iter().find(|(code, _)| *code == refusal.code());
    let is_login = refusal.parsed_severity() == Some(Severity::Fatal);
    let way_out = match way_out {
        Some((code, _)) if is_login && **code == SqlState::INSUFFICIENT_PRIVILEGE => {
            "; grant the role CONNECT on the database".to_owned()
        }
        Some((_, way_out)) => format!("; {way_out}"),
        None => String::new(),
    };
    format!("{words}{way_out} (SQLSTATE {})", refusal.code().code())
}

/// Returns the error with its causes, of which it shows none by itself.
fn text(error: &Error) -> String {
    let causes = successors(error.source(), |cause| (*cause).source());
    let mut text = error.to_string();
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Severity, SqlState, is_ending};

    #[test]
    fn a_session_ends_with_a_lost_connection_a_shutdown_the_server_s_time_outs_and_fatal_errors() {
        for (code, severity, ends) in [
            ("08006", Severity::Error, true),
            ("57P01", Severity::Error, true),
            ("25P03", Severity::Error, true),
            ("25P04", Severity::Error, true),
            ("57014", Severity::Error, false), // a cancelled statement
            ("25006", Severity::Error, false), // a standby
            ("25P02", Severity::Error, false),
            ("40001", Severity::Error, false),
            ("40001", Severity::Fatal, true), // a query that hindered the recovery of a standby
            ("53100", Severity::Error, false),
            ("53100", Severity::Panic, true), // a full disk
        ] {
            let code = SqlState::from_code(code);
            assert_eq!(
                is_ending(&code, Some(severity)),
                ends,
                "{code:?} {severity:?}"
            );
        }
    }
}
