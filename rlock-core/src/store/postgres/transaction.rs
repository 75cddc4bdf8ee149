//! Executes each request in a transaction that brings its settings, because a pooler may execute the next one in another session.

use std::{
    future::poll_fn,
    mem,
    pin::pin,
    sync::{Mutex, PoisonError},
};

use futures_util::future::join3;
use tokio_postgres::{
    Client, Error, Row,
    types::{ToSql, Type},
};

/// The transactions of a session.
pub(super) struct Transactions {
    begin: String,
    /// Keeps the three parts of a transaction together.
    order: Mutex<()>,
}

impl Transactions {
    /// Makes transactions with these settings, which are statements.
    pub(super) fn with(settings: &str) -> Self {
        Self {
            begin: format!("BEGIN ISOLATION LEVEL READ COMMITTED; {settings}"),
            order: Mutex::default(),
        }
    }

    /// Executes a statement in a transaction, with one round trip. The first poll puts it into the queue of the session.
    ///
    /// The statement is not prepared, because the next process would not know it.
    pub(super) async fn execute(
        &self,
        client: &Client,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        let mut parts = pin!(join3(
            client.batch_execute(&self.begin),
            client.query_typed(statement, parameters),
            // Rolls back if the statement has failed.
            client.batch_execute("COMMIT"),
        ));
        let mut is_first = true;
        let (began, rows, committed) = poll_fn(|cx| {
            let locked = || self.order.lock().unwrap_or_else(PoisonError::into_inner);
            let _order = mem::take(&mut is_first).then(locked);
            parts.as_mut().poll(cx)
        })
        .await;
        began?;
        let rows = rows?;
        committed.map(|()| rows)
    }
}
