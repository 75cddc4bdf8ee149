//! Puts the SQL of the schema together from its files, and creates what is missing: the tables, which all versions share, and
//! the functions of this version.

use std::{sync::LazyLock, time::Duration};

use rlock_proto::store::{
    BETWEEN_PROBES, FENCES_A_SECOND, GRACE, LONGEST_SILENCE, MOST_LET_IN, MOST_NOTIFIED,
    MOST_SHOWN, TOO_LARGE_FENCE,
};
use tokio_postgres::Client;

use super::errors::{classify_connect, is_denied};
use crate::{fingerprint::fingerprint, store::StoreError};

macro_rules! files {
    ($($name:literal)*) => {
        concat!($(include_str!(concat!("functions/", $name, ".sql")), "\n"),*)
    };
}

const TABLES: &str = files!("tables");
const FUNCTIONS: &str = files!(
    "holders" "waiters" "acquire" "release" "set_count" "downgrade" "renew" "inspect" "directory"
);

/// The end of the names of this version's functions.
static VERSION: LazyLock<String> = LazyLock::new(|| version(FUNCTIONS));

/// Returns a statement for this schema. Statements are written for the schema `rlock`, and for functions whose names have no
/// version at their ends.
pub(super) fn within(schema: &str, statement: &str) -> String {
    let mut parts = statement.split("rlock.");
    let before = parts.next().unwrap_or_default().to_owned();
    parts.fold(before, |text, part| {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = part.split_at(part.find(|c| !is_of_name(c)).unwrap_or(part.len()));
        if rest.starts_with('(') {
            return format!("{text}\"{schema}\".{name}_{}{rest}", *VERSION);
        }
        format!("{text}\"{schema}\".{name}{rest}")
    })
}

/// Returns a text with the numbers of the protocol.
fn with_numbers(text: &str) -> String {
    let millis = |time: Duration| time.as_millis().to_string();
    let numbers = [
        ("{GRACE}", millis(GRACE)),
        ("{LONGEST_SILENCE}", millis(LONGEST_SILENCE)),
        ("{BETWEEN_PROBES}", millis(BETWEEN_PROBES)),
        ("{MOST_LET_IN}", MOST_LET_IN.to_string()),
        ("{MOST_NOTIFIED}", MOST_NOTIFIED.to_string()),
        ("{MOST_SHOWN}", MOST_SHOWN.to_string()),
        ("{FENCES_A_SECOND}", FENCES_A_SECOND.to_string()),
        ("{TOO_LARGE_FENCE}", TOO_LARGE_FENCE.to_string()),
    ];
    let number = |text: String, (name, value): (&str, String)| text.replace(name, &value);
    numbers.into_iter().fold(text.to_owned(), number)
}

/// Returns the version of these statements, which changes with each of them.
fn version(statements: &str) -> String {
    let text = with_numbers(statements);
    let lines = text.lines().map(str::trim);
    let statements = lines.filter(|line| !line.starts_with("--"));
    let hash = fingerprint(statements.flat_map(str::bytes));
    format!("{:08x}", hash >> 32)
}

/// Creates the tables and the functions of this version, unless they are there. `wait`: for another client that creates them.
pub(super) async fn ensure(
    client: &Client,
    schema: &str,
    wait: Duration,
) -> Result<(), StoreError> {
    let tables = format!("tables of rlock, version {}", version(TABLES));
    let find = format!(
        "SELECT obj_description(to_regclass('\"{schema}\".lock'), 'pg_class'), to_regclass('\"{schema}\".lock') IS NOT NULL,
           to_regproc('\"{schema}\".acquire_{}') IS NOT NULL",
        *VERSION
    );
    // The role may lack the permission to create what is there, so it is asked for first.
    for creates in [false, true] {
        let found = client.query_one(&find, &[]).await;
        let found = found.map_err(|error| classify_connect(&error))?;
        let there: Option<String> = found.get(0);
        if found.get(1) && there.as_ref() != Some(&tables) {
            let there = there.unwrap_or_else(|| "tables of other software".to_owned());
            let source = format!(
                "the schema `{schema}` has {there}, and this client needs {tables}; name another schema with `?schema=`, or \
                 drop it when no client uses it"
            );
            return Err(StoreError::new(false, false, source));
        }
        if found.get(1) && found.get(2) {
            return Ok(());
        }
        if !creates {
            create(client, schema, &tables, wait).await?;
        }
    }
    let source = format!("the schema `{schema}` was dropped while it was created");
    Err(StoreError::new(true, false, source))
}

async fn create(
    client: &Client,
    schema: &str,
    version: &str,
    wait: Duration,
) -> Result<(), StoreError> {
    let tables = within(schema, &with_numbers(TABLES));
    let functions = within(schema, &with_numbers(FUNCTIONS));
    // One client creates them, and the others wait, and find them. It may take longer than a request waits for a row.
    let create = format!(
        "BEGIN; SET LOCAL lock_timeout = {}; SELECT pg_advisory_xact_lock(hashtextextended('rlock {schema}', 0));
         DO $create$ BEGIN
           IF to_regclass('\"{schema}\".lock') IS NULL THEN
             IF to_regnamespace('\"{schema}\"') IS NULL THEN CREATE SCHEMA \"{schema}\"; END IF;
             {tables}
             COMMENT ON TABLE \"{schema}\".lock IS '{version}';
           END IF;
           IF to_regproc('\"{schema}\".acquire_{}') IS NULL THEN
             {functions}
           END IF;
         END $create$; COMMIT",
        wait.as_millis(),
        *VERSION
    );
    let Err(error) = client.batch_execute(&create).await else {
        return Ok(());
    };
    let _ = client.batch_execute("ROLLBACK").await;
    if is_denied(&error) {
        let source = format!(
            "the schema `{schema}` lacks the tables or the functions of this version, and the role may not create them: \
             connect once with a role that may, then grant the others its tables and `USAGE`"
        );
        return Err(StoreError::new(false, false, source));
    }
    Err(classify_connect(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_names_the_functions_of_its_version_and_the_tables_of_all() {
        let statement = "SELECT rlock.renew($1, rlock.holder) FROM rlock.lock (a), 'rlock:x'";
        let expected = format!(
            "SELECT \"apart\".renew_{}($1, \"apart\".holder) FROM \"apart\".lock (a), 'rlock:x'",
            *VERSION
        );
        assert_eq!(within("apart", statement), expected);
    }
}
