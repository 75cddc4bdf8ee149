//! Guards transactions of sqlx in Postgres by a fence, so that a holder that has lost its lock cannot commit.
//!
//! Copy this file into your service. It needs sqlx 0.9 with the feature `postgres`, and the table of `postgres::TABLE`. Begin each transaction
//! with:
//!
//! ```ignore
//! let mut tx = fence.guard(pool.begin().await?).await?;
//! ```

use std::{error::Error, fmt, future::Future};

use rlock_core::fencing::{Fence, Stale, postgres};
use sqlx::{Postgres, Transaction, error::DatabaseError};

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
        tx: Transaction<'static, Postgres>,
    ) -> impl Future<Output = Result<Transaction<'static, Postgres>, TransactionError>> + Send;
}

impl FenceGuard for Fence {
    async fn guard(
        &self,
        mut tx: Transaction<'static, Postgres>,
    ) -> Result<Transaction<'static, Postgres>, TransactionError> {
        // Behind PgBouncer, add `.persistent(false)`.
        let guard = sqlx::query_scalar(postgres::GUARD)
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
    /// Returns whether to run the whole transaction again, with the same fence: after a serialization
    /// failure or a deadlock.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        let code = error.as_database_error().and_then(DatabaseError::code);
        code.is_some_and(|code| ["40001", "40P01"].contains(&&*code))
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
