//! Guards transactions of sqlx in SQLite by a fence, so that a holder that has lost its lock cannot commit.
//!
//! Copy this file into your service. It needs sqlx 0.9 with the feature `sqlite`, and the table of `sqlite::TABLE`. Begin each transaction
//! with:
//!
//! ```ignore
//! let mut tx = fence.guard(pool.begin_with("BEGIN IMMEDIATE").await?).await?;
//! ```

use std::{error::Error, fmt, future::Future};

use rlock_core::fencing::{Fence, Stale, sqlite};
use sqlx::{Sqlite, Transaction, error::DatabaseError};

/// Guards a transaction.
pub trait FenceGuard {
    /// Runs the guard, and returns the transaction, which then keeps the row of the fence's key until it ends.
    ///
    /// Pass a transaction that has neither read nor written, and commit it before the lock is released. It is not a savepoint,
    /// because those borrow the transaction that they are part of.
    ///
    /// # Errors
    ///
    /// [`Stale`](TransactionError::Stale) if a later holder of the lock has run its guard, or an error of the database. The
    /// transaction is dropped, which rolls it back.
    fn guard(
        &self,
        tx: Transaction<'static, Sqlite>,
    ) -> impl Future<Output = Result<Transaction<'static, Sqlite>, TransactionError>> + Send;
}

impl FenceGuard for Fence {
    async fn guard(
        &self,
        mut tx: Transaction<'static, Sqlite>,
    ) -> Result<Transaction<'static, Sqlite>, TransactionError> {
        let guard = sqlx::query_scalar(sqlite::GUARD)
            .bind(self.key())
            .bind(self.token().as_i64());
        self.check(guard.fetch_optional(&mut *tx).await?)?;
        Ok(tx)
    }
}

/// Why a guarded transaction did not commit.
#[derive(Debug)]
pub enum TransactionError {
    /// The lock was lost, and a later holder has written. Only a new call, with a new hold, can help.
    Stale(Stale),
    /// The database failed.
    Database(sqlx::Error),
}

impl TransactionError {
    /// Returns whether to run the whole transaction again, with the same fence: after another
    /// transaction had the file for longer than the busy time-out.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        let code = error.as_database_error().and_then(DatabaseError::code);
        // `SQLITE_BUSY`, whatever its extension.
        code.and_then(|code| code.parse::<u32>().ok())
            .is_some_and(|code| code % 256 == 5)
    }
}

impl From<Stale> for TransactionError {
    fn from(stale: Stale) -> Self {
        Self::Stale(stale)
    }
}

impl From<sqlx::Error> for TransactionError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl Error for TransactionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Stale(stale) => stale.source(),
            Self::Database(error) => error.source(),
        }
    }
}
