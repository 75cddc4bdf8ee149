//! Fences: fencing tokens that a database checks.
//!
//! A process that is paused for longer than its lease can write once more when it resumes, and no lock with a lease can
//! prevent that. The database can. It keeps the largest token of each key in a table, and each transaction begins with a
//! *guard*: one statement that takes the row of the key if the transaction's token is not smaller, and returns the token.
//!
//! The guard locks the row until the transaction ends. So if a stale holder and its successor write at the same time,
//! the database puts one of them first: either the stale transaction commits before the successor begins to read, or
//! its guard returns no row, and it rolls back. Clocks play no part in this. A check that only reads the row would
//! not be enough, because the successor may commit between the check and the write.
//!
//! | | table | guard |
//! | --- | --- | --- |
//! | Postgres | [`postgres::TABLE`] | [`postgres::GUARD`] |
//! | MariaDB | [`mariadb::TABLE`] | [`mariadb::GUARD`] |
//! | MySQL | [`mysql::TABLE`] | [`mysql::GUARD`], then [`mysql::TOKEN`] |
//! | SQLite | [`sqlite::TABLE`] | [`sqlite::GUARD`] |
//!
//! Bind the [key](Fence::key) and the [token](Fence::token), run the guard as the first statement of the transaction,
//! and pass the token that it returns to [`Fence::check`]. With sqlx and Postgres:
//!
//! ```ignore
//! let fence = lock.fence(); // `guard = lock` in the attribute
//! let mut tx = pool.begin().await?;
//! let token = sqlx::query_scalar(postgres::GUARD).bind(fence.key()).bind(fence.token().as_i64()).fetch_optional(&mut *tx).await?;
//! fence.check(token)?; // an error drops `tx`, which rolls back
//! // … the writes …
//! tx.commit().await?;
//! ```
//!
//! Run the guard on the connection of the transaction, before any `SELECT`, and outside savepoints, because rolling
//! one back would release the row. A *serialization failure* or a *deadlock* of the database does not mean that the
//! hold is stale: run the whole transaction again, with the same fence.
//!
//! The statements use the table `rlock_fence`. If your table has another name, copy their text. The page *Database
//! transactions* of the book has examples for sqlx, tokio-postgres, diesel and rusqlite.
//!
//! The idea of a token that the storage checks is Martin Kleppmann's:
//! [How to do distributed locking](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).

use std::{
    error::Error,
    fmt::{self, Write as _},
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

use rlock_proto::{
    escape_control::escape_control,
    key::{Key, shortened},
    mode::LockMode,
    store::TOKENS,
};

use crate::{engine::entry::EntryHandle, token::Token};

pub use crate::token::InvalidToken;

pub mod mariadb;
pub mod mysql;
pub mod postgres;
pub mod sqlite;

/// The key and the fencing token of an exclusive hold, for storage that refuses stale writers.
///
/// [`Hold::fence`](crate::Hold::fence) returns it, and [`fencing`](self) has the statements that check it in a
/// database.
///
/// The key has at most 1,024 bytes. The database compares keys byte by byte: a column that ignores case
/// would refuse `order:a` because of `order:A`. Clients with different [prefixes](crate::LockClientBuilder::prefix)
/// have different locks with the same key, so give each prefix a table of its own.
///
/// # Text
///
/// `Display` writes `<key>@<token>` and `FromStr` reads it. `%` and everything but visible ASCII is percent-encoded,
/// even if [`escape`](crate::escape) has already encoded it, so the text fits into an HTTP header and a log line.
/// Different texts can stand for the same fence, so compare fences, not texts. The text names the key even if the
/// client [redacts](crate::LockClientBuilder::redact_keys) keys; `Debug` does not.
///
/// With the feature `serde`, a fence is `{"key": "order:42", "token": 2258374700878976}`.
///
/// # Examples
///
/// ```
/// use rlock_core::{LockClient, fencing::Fence};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = LockClient::in_memory();
/// let guard = client.lock("order:42").acquire().await?;
/// let fence = guard.fence();
/// assert_eq!(fence.key(), "order:42");
///
/// let header = fence.to_string(); // `order:42@2258374700878976`
/// assert_eq!(header.parse::<Fence>()?, fence);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(into = "SerializedFence", try_from = "SerializedFence")
)]
pub struct Fence {
    key: Key,
    token: Token,
}

/// A fence as `serde` writes it.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "Fence")]
struct SerializedFence {
    key: String,
    token: Token,
}

#[cfg(feature = "serde")]
impl From<Fence> for SerializedFence {
    fn from(fence: Fence) -> Self {
        Self {
            key: fence.key().to_owned(),
            token: fence.token,
        }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<SerializedFence> for Fence {
    type Error = InvalidFence;

    fn try_from(parts: SerializedFence) -> Result<Self, InvalidFence> {
        Self::new(&parts.key, parts.token)
    }
}

impl Fence {
    /// Makes a fence of a key and a token that were sent or stored apart.
    ///
    /// # Errors
    ///
    /// [`InvalidFence`] if no lock can have this key.
    pub fn new(key: &str, token: Token) -> Result<Self, InvalidFence> {
        match Key::parse(key) {
            Ok(key) => Ok(Self { key, token }),
            Err(error) => {
                let reason = format!("its key is invalid: {}", error.reason);
                Err(InvalidFence::new(&format!("{key}@{token}"), reason))
            }
        }
    }

    /// Returns the key of the lock.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Returns the fencing token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Checks the token that the guard of a transaction returned, or `None` if it returned no row.
    ///
    /// # Errors
    ///
    /// [`Stale`] unless it is the token of this fence. Roll the transaction back.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use rlock_core::fencing::Fence;
    ///
    /// let fence: Fence = "order:42@5".parse()?;
    /// assert!(fence.check(Some(5)).is_ok());
    /// let stale = fence.check(None).unwrap_err();
    /// assert_eq!(stale.key(), "order:42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self, returned: Option<i64>) -> Result<(), Stale> {
        if returned == Some(self.token.as_i64()) {
            return Ok(());
        }
        let returned = returned.and_then(|token| Token::try_from(token).ok());
        Err(Stale {
            fence: self.clone(),
            newer: returned.filter(|token| *token > self.token),
        })
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.key().bytes() {
            match byte {
                b'!'..=b'~' if byte != b'%' => f.write_char(byte.into())?,
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        write!(f, "@{}", self.token)
    }
}

impl FromStr for Fence {
    type Err = InvalidFence;

    fn from_str(text: &str) -> Result<Self, InvalidFence> {
        let invalid = |reason: &str| InvalidFence::new(text, reason.to_owned());
        let (key, token) = text
            .rsplit_once('@')
            .ok_or_else(|| invalid("it is written `<key>@<token>`"))?;
        let token = token.parse().map_err(|_| invalid(InvalidToken::RANGE))?;
        let key = decoded(key).ok_or_else(|| invalid("its key is not percent-encoded UTF-8"))?;
        Self::new(&key, token)
    }
}

/// Decodes what `Display` percent-encodes.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Leaves out a key that the lock hides.
impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("key", &self.key.to_string())
            .field("token", &self.token.as_u64())
            .finish()
    }
}

/// The error of a text, or of a key and a token, that cannot be a [`Fence`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFence {
    text: String,
    reason: String,
}

impl InvalidFence {
    fn new(text: &str, reason: String) -> Self {
        let text = shortened(text);
        Self { text, reason }
    }
}

impl fmt::Display for InvalidFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = escape_control(&self.text);
        write!(f, "invalid fence `{text}`: {}", self.reason)
    }
}

impl Error for InvalidFence {}

/// The error of a hold whose token is below the largest that the storage has seen for the key: another hold has begun since,
/// so this one was lost.
///
/// Roll the transaction back. Running it again cannot help, but a new call, which gets a new hold, can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    fence: Fence,
    newer: Option<Token>,
}

impl Stale {
    /// Returns the key of the lock.
    #[must_use]
    pub fn key(&self) -> &str {
        self.fence.key()
    }

    /// Returns the token that was refused.
    #[must_use]
    pub fn token(&self) -> Token {
        self.fence.token()
    }

    /// Returns the larger token that the storage has seen, or `None` if the guard did not return it. The guards of
    /// Postgres and SQLite return no row instead.
    #[must_use]
    pub fn newer_token(&self) -> Option<Token> {
        self.newer
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fence { key, token } = &self.fence;
        write!(
            f,
            "token {token} of lock `{key}` is stale, because the storage has seen "
        )?;
        match self.newer {
            Some(newer) => write!(f, "token {newer}")?,
            None => f.write_str("a larger one")?,
        }
        f.write_str(": roll back, and write nothing")
    }
}

impl Error for Stale {}

/// Returns the smallest token of a lock that the store grants at this time, by the clock of the store. Tokens grow by
/// 128 in each 100 µs, starting in 1970.
///
/// Use it to delete old rows of [`fencing`](self)'s table: rows with smaller tokens are no longer needed when no
/// process that was paused before this time can resume and write. A client that keeps a lock for its next calls gives
/// them tokens of the same grant, so a hold that began later may have a smaller token.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use rlock_core::fencing::token_at;
///
/// let month = Duration::from_secs(30 * 24 * 60 * 60);
/// let least = token_at(SystemTime::now() - month).as_i64();
/// // DELETE FROM rlock_fence WHERE token < $least
/// # assert!(least > 0);
/// ```
#[must_use]
pub fn token_at(time: SystemTime) -> Token {
    let since = time.duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    });
    let token = rlock_proto::store::fence_at(micros).saturating_mul(TOKENS);
    Token::of_hold(token.min(i64::MAX.cast_unsigned()))
}

/// Returns the fence of each exclusive lock, in ascending order of the keys.
pub(crate) fn fences<'a>(entries: impl Iterator<Item = &'a EntryHandle>) -> Vec<Fence> {
    let exclusive = entries.filter(|entry| entry.owner().mode() == LockMode::Exclusive);
    let fence = |entry: &EntryHandle| Fence {
        key: entry.hold.key.clone(),
        token: entry.token(),
    };
    let mut fences: Vec<Fence> = exclusive.map(fence).collect();
    fences.sort_unstable_by(|one, other| one.key().cmp(other.key()));
    fences
}

/// Returns the fence of the only exclusive lock.
#[track_caller]
pub(crate) fn only_fence<'a>(entries: impl Iterator<Item = &'a EntryHandle>) -> Fence {
    let mut fences = fences(entries);
    match (fences.pop(), fences.len()) {
        (Some(fence), 0) => fence,
        (None, _) => panic!(
            "a shared lock or a permit has no fence, because a later hold may have a smaller token: \
             acquire the lock exclusively to write"
        ),
        (Some(_), others) => panic!(
            "there are {} exclusive locks, each with a fence of its own: check each of `fences()`",
            others + 1
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(number: u64) -> Token {
        number.try_into().expect("valid")
    }

    #[test]
    fn a_fence_is_written_for_headers_and_logs() {
        let fence = Fence::new("order:ä %\n@1", token(5)).expect("valid");
        assert_eq!(fence.to_string(), "order:%C3%A4%20%25%0A@1@5");
        assert_eq!(fence.to_string().parse(), Ok(fence));
    }

    #[test]
    fn an_invalid_fence_is_refused_with_the_text_and_the_reason() {
        for (text, reason) in [
            ("order:42", "it is written `<key>@<token>`"),
            ("order:42@", InvalidToken::RANGE),
            ("order:42@+5", InvalidToken::RANGE),
            ("order:42@0", InvalidToken::RANGE),
            ("order:42@9007199254740992", InvalidToken::RANGE),
            ("order:42@99999999999999999999", InvalidToken::RANGE),
            ("%@5", "its key is not percent-encoded UTF-8"),
            ("%+5@5", "its key is not percent-encoded UTF-8"),
            ("%FF@5", "its key is not percent-encoded UTF-8"),
            ("%ää@5", "its key is not percent-encoded UTF-8"),
        ] {
            let error = text.parse::<Fence>().unwrap_err().to_string();
            assert_eq!(error, format!("invalid fence `{text}`: {reason}"));
        }
        let error = "@5".parse::<Fence>().unwrap_err().to_string();
        assert!(
            error.starts_with("invalid fence `@5`: its key is invalid: it is empty"),
            "{error}"
        );
    }

    #[test]
    fn only_the_own_token_passes_and_a_larger_one_is_named() {
        let fence = Fence::new("order:42", token(5)).expect("valid");
        assert_eq!(fence.check(Some(5)), Ok(()));
        for (returned, newer, seen) in [
            (Some(7), Some(token(7)), "token 7"),
            (None, None, "a larger one"),
            (Some(4), None, "a larger one"),
            (Some(-1), None, "a larger one"),
        ] {
            let stale = fence.check(returned).unwrap_err();
            assert_eq!(
                (stale.key(), stale.token(), stale.newer_token()),
                ("order:42", token(5), newer)
            );
            assert_eq!(
                stale.to_string(),
                format!(
                    "token 5 of lock `order:42` is stale, because the storage has seen {seen}: roll back, and write nothing"
                )
            );
        }
    }

    #[test]
    #[cfg(feature = "serde")]
    fn serde_checks_what_it_reads() {
        let fence = Fence::new("order:42", token((1 << 53) - 1)).expect("valid");
        let json = r#"{"key":"order:42","token":9007199254740991}"#;
        assert_eq!(serde_json::to_string(&fence).expect("written"), json);
        assert_eq!(serde_json::from_str::<Fence>(json).expect("read"), fence);
        let error = serde_json::from_str::<Fence>(r#"{"key":"","token":5}"#).unwrap_err();
        assert!(
            error.to_string().starts_with("invalid fence `@5`"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn a_fence_is_read_as_it_is_written(key in "\\PC{1,20}|[ -~\n\t@%]{1,20}", number in 1..1_u64 << 53) {
            let Ok(fence) = Fence::new(&key, token(number)) else { return Ok(()) };
            let text = fence.to_string();
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{}", text);
            prop_assert_eq!(text.parse(), Ok(fence));
        }

        #[test]
        fn no_text_panics(text in ".{0,20}|[%@0-9a-f]{0,12}") {
            if let Ok(fence) = text.parse::<Fence>() {
                prop_assert_eq!(fence.to_string().parse(), Ok(fence));
            }
        }
    }
}
