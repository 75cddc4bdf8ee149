//! Guards transactions of rusqlite by a fence, so that a holder that has lost its lock cannot commit.
//!
//! Copy this file into your service. It needs rusqlite 0.39, and the table of `sqlite::TABLE`. Begin each transaction
//! with:
//!
//! ```ignore
//! let tx = fence.guard(connection.transaction_with_behavior(TransactionBehavior::Immediate)?)?;
//! ```

use std::{error::Error, fmt};

use rlock_core::fencing::{Fence, Stale, sqlite};
use rusqlite::{ErrorCode, OptionalExtension as _, Transaction};

/// Guards a transaction.
pub trait FenceGuard {
    /// Runs the guard, and returns the transaction, which then keeps the row of the fence's key until it ends.
    ///
    /// Pass a transaction that has neither read nor written, and commit it before the lock is released.
    ///
    /// # Errors
    ///
    /// [`Stale`](TransactionError::Stale) if a later holder of the lock has run its guard, or an error of the database. The
    /// transaction is dropped, which rolls it back.
    fn guard<'c>(&self, tx: Transaction<'c>) -> Result<Transaction<'c>, TransactionError>;
}

impl FenceGuard for Fence {
    fn guard<'c>(&self, tx: Transaction<'c>) -> Result<Transaction<'c>, TransactionError> {
        let bound = (self.key(), self.token().as_i64());
        let token = tx.query_row(sqlite::GUARD, bound, |row| row.get("token"));
        self.check(token.optional()?)?;
        Ok(tx)
    }
}

/// Why a guarded transaction did not commit.
#[derive(Debug)]
pub enum TransactionError {
    /// The lock was lost, and a later holder has written. Only a new call, with a new hold, can help.
    Stale(Stale),
    /// The database failed.
    Database(rusqlite::Error),
}

impl TransactionError {
    /// Returns whether to run the whole transaction again, with the same fence: after another
    /// transaction had the file for longer than the busy time-out.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
    }
}

impl From<Stale> for TransactionError {
    fn from(stale: Stale) -> Self {
        Self::Stale(stale)
    }
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> Self {
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
