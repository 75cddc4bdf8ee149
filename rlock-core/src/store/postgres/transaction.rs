//! Executes each request in a transaction that brings its settings, because a pooler may execute the next one in another session.

use futures_util::future::join3;
use tokio::sync::Mutex;
use tokio_postgres::{
    Client, Error, Row,
    types::{ToSql, Type},
};

/// The transactions of a session.
pub(super) struct Transactions {
    begin: String,
    /// Held by the transaction that is under way, because `PgBouncer` (seen with 1.18) may stop to read replies if a client sends many
    /// transactions at once. If its caller does not poll it, the session falls silent and is replaced.
    turn: Mutex<()>,
}

impl Transactions {
    /// Makes transactions with these settings, which are statements.
    pub(super) fn with(settings: &str) -> Self {
        Self {
            begin: format!("BEGIN ISOLATION LEVEL READ COMMITTED; {settings}"),
            turn: Mutex::default(),
        }
    }

    /// Executes a statement in a transaction, with one round trip, after those whose first poll came earlier.
    ///
    /// The statement is not prepared, because the next process would not know it.
    pub(super) async fn execute(
        &self,
        client: &Client,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        let _turn = self.turn.lock().await;
        let (began, rows, committed) = join3(
            client.batch_execute(&self.begin),
            client.query_typed(statement, parameters),
            // Rolls back if the statement has failed.
            client.batch_execute("COMMIT"),
        )
        .await;
        began?;
        let rows = rows?;
        committed.map(|()| rows)
    }
}
