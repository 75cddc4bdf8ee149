//! Fencing tokens that a database checks: the guard statement, and what its result means.
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
//! The folder `examples/fences` of the repository has files to copy for sqlx, tokio-postgres and rusqlite, which make this one
//! line: `let mut tx = fence.guard(pool.begin().await?).await?`. With any other driver, bind the [key](Fence::key) and the
//! [token](Fence::token), run the guard as the first statement of the transaction, and pass the token that it returns to
//! [`Fence::check`]. This is what the file for sqlx and Postgres does:
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
//! transactions* of the book explains all of this, and has the code for diesel, too.
//!
//! The idea of a token that the storage checks is Martin Kleppmann's:
//! [How to do distributed locking](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).

use std::{
    error::Error,
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use rlock_proto::{mode::LockMode, store::TOKENS};

use crate::{engine::entry::EntryHandle, token::Token};

pub use self::fence::{Fence, InvalidFence};
pub use crate::token::InvalidToken;

mod fence;
pub mod mariadb;
pub mod mysql;
pub mod postgres;
pub mod sqlite;

impl Fence {
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
        if returned == Some(self.token().as_i64()) {
            return Ok(());
        }
        let returned = returned.and_then(|token| Token::try_from(token).ok());
        Err(Stale {
            fence: self.clone(),
            newer: returned.filter(|token| *token > self.token()),
        })
    }
}

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
        let (key, token) = (self.fence.as_key(), self.token());
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
    let fence = |entry: &EntryHandle| Fence::of(entry.hold.key.clone(), entry.token());
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
    use super::*;

    fn token(number: u64) -> Token {
        number.try_into().expect("valid")
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
}
