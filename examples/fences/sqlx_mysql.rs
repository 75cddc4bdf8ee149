//! Guards transactions of sqlx in MySQL or MariaDB by a fence, so that a holder that has lost its lock cannot commit.
//!
//! Copy this file into your service. It needs sqlx 0.9 with the feature `mysql`, and the table of `mysql::TABLE`. Begin each transaction
//! with:
//!
//! ```ignore
//! let mut tx = fence.guard(pool.begin().await?).await?;
//! ```

use std::{error::Error, fmt, future::Future};

use rlock_core::fencing::{Fence, Stale, mysql};
use sqlx::{MySql, Transaction, mysql::MySqlDatabaseError};

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
        tx: Transaction<'static, MySql>,
    ) -> impl Future<Output = Result<Transaction<'static, MySql>, TransactionError>> + Send;
}

impl FenceGuard for Fence {
    async fn guard(
        &self,
        mut tx: Transaction<'static, MySql>,
    ) -> Result<Transaction<'static, MySql>, TransactionError> {
        // In MariaDB, one statement would do: `mariadb::GUARD` returns the token, as `mysql::TOKEN` does.
        let guard = sqlx::query(mysql::GUARD)
            .bind(self.key())
            .bind(self.token().as_i64());
        guard.execute(&mut *tx).await?;
        let token = sqlx::query_scalar(mysql::TOKEN).bind(self.key());
        self.check(token.fetch_optional(&mut *tx).await?)?;
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
    /// Returns whether to run the whole transaction again, with the same fence: after a deadlock (1213),
    /// a wait for a row that took too long (1205), or a row that has changed with `innodb_snapshot_isolation` (1020).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        let error = error.as_database_error();
        let error = error.and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
        error.is_some_and(|error| [1020, 1205, 1213].contains(&error.number()))
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
