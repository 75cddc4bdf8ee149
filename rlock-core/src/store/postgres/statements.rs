//! The statements of a session: one for each function, and those that look at the server.

use tokio_postgres::{Client, Error, Statement};

use super::schema::Schema;

/// Defines the statements, which are written for the schema `rlock`.
macro_rules! statements {
    ($($name:ident: $text:literal,)*) => {
        pub(super) struct Statements {
            $(pub(super) $name: Statement,)*
        }

        impl Statements {
            /// Prepares all statements with one round trip.
            pub(super) async fn prepare(client: &Client, schema: &Schema) -> Result<Self, Error> {
                let ($($name,)*) = tokio::try_join!(
                    $(async { client.prepare(&schema.within($text)).await },)*
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
