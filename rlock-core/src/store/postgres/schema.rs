//! Puts the SQL of the schema together from its files, creates it where it is missing, and refuses one of another version.

use std::time::Duration;

use rlock_proto::store::{
    BETWEEN_PROBES, FENCES_A_SECOND, GRACE, LONGEST_SILENCE, MOST_LET_IN, MOST_NOTIFIED,
    MOST_SHOWN, TOO_LARGE_FENCE,
};
use tokio_postgres::Client;

use super::errors::{classify_connect, is_denied};
use crate::store::StoreError;

macro_rules! files {
    ($($name:literal)*) => {
        concat!($(include_str!(concat!("functions/", $name, ".sql")), "\n"),*)
    };
}

const TEXT: &str = files!(
    "tables" "holders" "waiters" "acquire" "release" "set_count" "downgrade" "renew" "inspect" "directory"
);

/// Returns a statement for this schema. Statements are written for the schema `rlock`.
pub(super) fn within(schema: &str, statement: &str) -> String {
    statement.replace("rlock.", &format!("\"{schema}\"."))
}

/// Returns the statements that create the tables and functions.
fn text(schema: &str) -> String {
    let millis = |time: Duration| time.as_millis().to_string();
    let constants = [
        ("{GRACE}", millis(GRACE)),
        ("{LONGEST_SILENCE}", millis(LONGEST_SILENCE)),
        ("{BETWEEN_PROBES}", millis(BETWEEN_PROBES)),
        ("{MOST_LET_IN}", MOST_LET_IN.to_string()),
        ("{MOST_NOTIFIED}", MOST_NOTIFIED.to_string()),
        ("{MOST_SHOWN}", MOST_SHOWN.to_string()),
        ("{FENCES_A_SECOND}", FENCES_A_SECOND.to_string()),
        ("{TOO_LARGE_FENCE}", TOO_LARGE_FENCE.to_string()),
    ];
    let constant = |text: String, (name, value): (&str, String)| text.replace(name, &value);
    let text = constants.into_iter().fold(TEXT.to_owned(), constant);
    within(schema, &text)
}

/// Returns a hash of these bytes, by FNV-1a: the same in each version of the compiler.
pub(super) fn fingerprint(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the version of the schema, which changes with each statement.
fn version() -> String {
    let text = text("rlock");
    let lines = text.lines().map(str::trim);
    let statements = lines.filter(|line| !line.starts_with("--"));
    let hash = fingerprint(statements.flat_map(str::bytes));
    format!("locks of rlock, version {hash:016x}")
}

/// Creates the schema unless it is there.
pub(super) async fn ensure(client: &Client, schema: &str) -> Result<(), StoreError> {
    let find = format!(
        "SELECT obj_description(to_regclass('\"{schema}\".lock'), 'pg_class'), to_regclass('\"{schema}\".lock') IS NOT NULL"
    );
    let version = version();
    // The role may lack the permission to create what is there, so it is asked for first.
    for creates in [false, true] {
        let found = client.query_one(&find, &[]).await;
        let found = found.map_err(|error| classify_connect(&error))?;
        match (found.get::<_, Option<String>>(0), found.get(1)) {
            (Some(there), true) if there == version => return Ok(()),
            (there, true) => {
                let there = there.unwrap_or_else(|| "tables of other software".to_owned());
                let source = format!(
                    "the schema `{schema}` has {there}, and this client needs {version}; name another schema with \
                     `?schema=`, or drop it when no client uses it"
                );
                return Err(StoreError::new(false, false, source));
            }
            (_, false) if creates => break,
            (_, false) => create(client, schema, &version).await?,
        }
    }
    let source = format!("the schema `{schema}` was dropped while it was created");
    Err(StoreError::new(true, false, source))
}

async fn create(client: &Client, schema: &str, version: &str) -> Result<(), StoreError> {
    let text = text(schema);
    // One client creates it, and the others wait, and find it.
    let create = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('rlock {schema}', 0));
         DO $create$ BEGIN
           IF to_regclass('\"{schema}\".lock') IS NULL THEN
             IF to_regnamespace('\"{schema}\"') IS NULL THEN CREATE SCHEMA \"{schema}\"; END IF;
             {text}
             COMMENT ON TABLE \"{schema}\".lock IS '{version}';
           END IF;
         END $create$; COMMIT"
    );
    let Err(error) = client.batch_execute(&create).await else {
        return Ok(());
    };
    let _ = client.batch_execute("ROLLBACK").await;
    if is_denied(&error) {
        let source = format!(
            "the schema `{schema}` is missing, and the role may not create it: connect once with a role that may, then \
             grant the others its tables and `USAGE`"
        );
        return Err(StoreError::new(false, false, source));
    }
    Err(classify_connect(&error))
}
