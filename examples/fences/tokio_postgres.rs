//! Guards transactions of tokio-postgres by a fence, so that a holder that has lost its lock cannot commit.
//!
//! Copy this file into your service. It needs tokio-postgres 0.7, and the table of `postgres::TABLE`. Begin each transaction
//! with:
//!
//! ```ignore
//! let tx = fence.guard(client.transaction().await?).await?;
//! ```

use std::{error::Error, fmt, future::Future};

use rlock_core::fencing::{Fence, Stale, postgres};
use tokio_postgres::{
    Transaction,
    error::SqlState,
    types::{ToSql, Type},
};

/// Guards a transaction.
pub trait FenceGuard {
    /// Runs the guard, and returns the transaction, which then keeps the row of the fence's key until it ends.
    ///
    /// Pass the outermost transaction, which has neither read nor written, and commit it before the lock is released.
    ///
    /// # Errors
    ///
    /// [`Stale`](TransactionError::Stale) if a later holder of the lock has run its guard, or an error of the database. The
    /// transaction is dropped, which rolls it back.
    fn guard<'c>(
        &self,
        tx: Transaction<'c>,
    ) -> impl Future<Output = Result<Transaction<'c>, TransactionError>> + Send;
}

impl FenceGuard for Fence {
    async fn guard<'c>(&self, tx: Transaction<'c>) -> Result<Transaction<'c>, TransactionError> {
        let (key, token) = (self.key(), self.token().as_i64());
        // With types, so that the statement takes one round trip, and works behind PgBouncer.
        let values: [(&(dyn ToSql + Sync), Type); 2] = [(&key, Type::TEXT), (&token, Type::INT8)];
        let row = tx.query_typed_opt(postgres::GUARD, &values).await?;
        self.check(row.map(|row| row.get("token")))?;
        Ok(tx)
    }
}

/// Why a guarded transaction did not commit.
#[derive(Debug)]
pub enum TransactionError {
    /// The lock was lost, and a later holder has written. Only a new call, with a new hold, can help.
    Stale(Stale),
    /// The database failed.
    Database(tokio_postgres::Error),
}

impl TransactionError {
    /// Returns whether to run the whole transaction again, with the same fence: after a serialization
    /// failure or a deadlock.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        let retryable = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
        ];
        error.code().is_some_and(|code| retryable.contains(code))
    }
}

impl From<Stale> for TransactionError {
    fn from(stale: Stale) -> Self {
        Self::Stale(stale)
    }
}

impl From<tokio_postgres::Error> for TransactionError {
    fn from(error: tokio_postgres::Error) -> Self {
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
