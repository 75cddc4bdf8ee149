//! The statements of a session: one for each function, and those that look at the server.

use std::sync::Arc;

use tokio_postgres::{Client, Error, Row};

use super::{parameter::Parameter, schema::Schema, transaction::Transactions};

/// A statement, and how a session executes it.
pub(super) enum Statement {
    /// The session has prepared it, and has the settings that it needs.
    Prepared(tokio_postgres::Statement),
    /// A transaction brings it with its settings, because a pooler serves the session.
    Brought(String, Arc<Transactions>),
}

impl Statement {
    async fn new(
        client: &Client,
        transactions: Option<&Arc<Transactions>>,
        text: String,
    ) -> Result<Self, Error> {
        Ok(match transactions {
            Some(transactions) => Self::Brought(text, Arc::clone(transactions)),
            None => Self::Prepared(client.prepare(&text).await?),
        })
    }

    /// Executes the statement. The first poll puts it into the queue of the session.
    pub(super) async fn execute(
        &self,
        client: &Client,
        parameters: &[Parameter],
    ) -> Result<Vec<Row>, Error> {
        match self {
            Self::Prepared(statement) => {
                let values: Vec<_> = parameters.iter().map(Parameter::value).collect();
                client.query(statement, &values).await
            }
            Self::Brought(text, transactions) => {
                let values = parameters.iter().map(|one| (one.value(), one.of.clone()));
                let values: Vec<_> = values.collect();
                transactions.execute(client, text, &values).await
            }
        }
    }
}

/// Defines the statements, which are written for the schema `rlock`.
macro_rules! statements {
    ($($name:ident: $text:literal,)*) => {
        pub(super) struct Statements {
            $(pub(super) $name: Statement,)*
        }

        impl Statements {
            /// Prepares all statements with one round trip, unless transactions bring them.
            pub(super) async fn new(
                client: &Client,
                transactions: Option<&Arc<Transactions>>,
                schema: &Schema,
            ) -> Result<Self, Error> {
                let ($($name,)*) = tokio::try_join!(
                    $(Statement::new(client, transactions, schema.within($text)),)*
                )?;
                Ok(Self { $($name,)* })
            }
        }
    };
}

// Each returns one row. A session delivers nothing while a caller leaves the rows of its reply behind, and renewals and
// notifications would wait for that caller.
statements! {
    acquire: "SELECT * FROM rlock.acquire($1, $2, $3, $4, $5, $6)",
    set_count: "SELECT rlock.set_count($1, $2, $3, $4, $5)",
    downgrade: "SELECT rlock.downgrade($1, $2, $3, $4, $5)",
    release: "SELECT rlock.release($1, $2, $3, $4, $5, $6)",
    renew: "SELECT rlock.renew($1, $2, $3, $4, $5)",
    inspect: "SELECT * FROM rlock.inspect($1)",
    held: "SELECT ARRAY(SELECT rlock.held($1))",
    publish: "SELECT rlock.publish($1, $2)",
    clients: "SELECT ARRAY(SELECT DISTINCT substr(application_name, 7, 36) FROM pg_stat_activity \
              WHERE datname = current_database() AND application_name LIKE 'rlock:%' || $1)",
    address: "SELECT ARRAY(SELECT host(client_addr) || ':' || client_port FROM pg_stat_activity \
              WHERE client_addr IS NOT NULL AND starts_with(application_name, 'rlock:' || $1) LIMIT 1)",
    ping: "SELECT 1",
}
