//! Puts the SQL of the schema together from its files, and creates what is missing: the tables, which all versions share, and
//! the functions of this version.

use std::{sync::LazyLock, time::Duration};

use rlock_proto::store::{
    BETWEEN_PROBES, FENCES_A_SECOND, GRACE, LONGEST_SILENCE, MOST_LET_IN, MOST_NOTIFIED,
    MOST_SHOWN, TOO_LARGE_FENCE,
};
use tokio_postgres::{Client, error::SqlState};

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
const CREATE: &str = files!("create");

/// How each function begins in its file.
const FUNCTION: &str = "CREATE FUNCTION rlock.";

/// The end of the names of this version's functions.
static VERSION: LazyLock<String> = LazyLock::new(|| version(FUNCTIONS));

/// Whether locks survive a crash of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Durability {
    /// They do, because each grant waits for the disk.
    Disk,
    /// They do not, because the tables are `UNLOGGED`. No request waits for the disk.
    Memory,
}

impl Durability {
    /// Returns the durability that has this name in a URL.
    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::Disk, Self::Memory];
        all.into_iter().find(|durability| durability.name() == name)
    }

    pub(in crate::store) fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
        }
    }

    /// Returns the `relpersistence` of the tables.
    pub(in crate::store) fn persistence(self) -> &'static str {
        match self {
            Self::Disk => "p",
            Self::Memory => "u",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Disk => Self::Memory,
            Self::Memory => Self::Disk,
        }
    }

    /// Returns the statements that give this durability to the tables, in this order because no logged table may refer to an unlogged one.
    fn set(self) -> &'static str {
        match self {
            Self::Disk => {
                "ALTER TABLE rlock.lock SET LOGGED; ALTER TABLE rlock.holder SET LOGGED; ALTER TABLE rlock.waiter SET LOGGED"
            }
            Self::Memory => {
                "ALTER TABLE rlock.holder SET UNLOGGED; ALTER TABLE rlock.waiter SET UNLOGGED; ALTER TABLE rlock.lock SET UNLOGGED"
            }
        }
    }
}

/// The schema that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Schema {
    pub(in crate::store) name: String,
    pub(in crate::store) durability: Durability,
}

impl Schema {
    /// Returns a statement for this schema. Statements are written for the schema `rlock`, and for functions whose names have
    /// no version at their ends.
    pub(in crate::store) fn within(&self, statement: &str) -> String {
        let mut parts = statement.split("rlock.");
        let before = parts.next().unwrap_or_default().to_owned();
        parts.fold(before, |text, part| {
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = part.find(|c| !is_of_name(c)).unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            let version = if rest.starts_with('(') {
                format!("_{}", *VERSION)
            } else {
                String::new()
            };
            format!("{text}\"{}\".{name}{version}{rest}", self.name)
        })
    }

    /// Returns whether a database has the tables and the functions of this version.
    pub(super) async fn exists(&self, client: &Client) -> Result<bool, StoreError> {
        let found = client.query_typed_one(&self.is_there(), &[]).await;
        found
            .map(|row| row.get(0))
            .map_err(|error| classify_connect(&error))
    }

    /// Creates the tables and the functions of this version, unless they exist. Waits up to `wait` for another client that
    /// creates them.
    pub(super) async fn ensure(&self, client: &Client, wait: Duration) -> Result<(), StoreError> {
        // Asks first, because the statement fails for a role that may not create anything, even if nothing is missing.
        if self.exists(client).await? {
            return Ok(());
        }
        // That may take longer than a request waits for a row. Both statements are one transaction.
        let create = format!(
            "SET LOCAL lock_timeout = {}; {}",
            wait.as_millis(),
            self.create()
        );
        let Err(error) = client.batch_execute(&create).await else {
            return Ok(());
        };
        if is_denied(&error) {
            let Self { name, .. } = self;
            let source = format!(
                "the schema `{name}` lacks the tables or the functions of this version, and the role may not create them; \
                 execute what `rlock postgres schema` prints, with a role that may"
            );
            return Err(StoreError::new(false, false, source));
        }
        match error.as_db_error() {
            // `create.sql` raises it, in our words.
            Some(refused) if *refused.code() == SqlState::RAISE_EXCEPTION => {
                Err(StoreError::new(false, false, refused.message()))
            }
            _ => Err(classify_connect(&error)),
        }
    }

    /// Returns the query that says whether everything exists. It needs no permission, and searches by indexes.
    fn is_there(&self) -> String {
        let Self { name, durability } = self;
        let functions = self.functions();
        let names: Vec<_> = functions.iter().map(|(name, _)| &**name).collect();
        format!(
            "SELECT (SELECT count(DISTINCT proname) FROM pg_proc WHERE pronamespace = it AND proname = ANY ('{{{}}}')) = {}
               AND (SELECT count(*) FROM pg_class WHERE relnamespace = it AND relname = ANY ('{{lock,holder,waiter}}')
                 AND relpersistence = '{}') = 3
               AND EXISTS (SELECT FROM pg_class WHERE relnamespace = it AND relname = 'lock'
                 AND obj_description(oid, 'pg_class') = '{}')
             FROM to_regnamespace('\"{name}\"') it",
            names.join(","),
            names.len(),
            durability.persistence(),
            Self::tables_version(),
        )
    }

    /// Returns the statement that creates what is missing.
    pub(super) fn create(&self) -> String {
        let Self { name, durability } = self;
        let tables = match durability {
            Durability::Disk => TABLES.to_owned(),
            Durability::Memory => TABLES.replace("CREATE TABLE", "CREATE UNLOGGED TABLE"),
        };
        // Repairs a function that was changed by hand.
        let functions = FUNCTIONS.replace(FUNCTION, "CREATE OR REPLACE FUNCTION rlock.");
        let create = CREATE
            .replace("{TABLES}", &tables)
            .replace("{FUNCTIONS}", &functions)
            .replace("{VERSION}", &Self::tables_version())
            .replace("{PERSISTENCE}", durability.persistence())
            .replace("{OTHER_DURABILITY}", &self.other_durability());
        self.within(&with_numbers(&create))
            .replace("{SCHEMA}", name)
    }

    /// Returns the error for tables of the other durability, with the ways out.
    pub(in crate::store) fn other_durability(&self) -> String {
        let Self { name, durability } = self;
        let there = durability.other().name();
        let default = match durability {
            Durability::Disk => ", the default",
            Durability::Memory => "",
        };
        format!(
            "the tables of the schema `{name}` have the durability `{there}`, and this client asks for `{}`{default}; set \
             `durability={there}` in its URL, name another schema with `?schema=`, or change the tables, which loses no lock, \
             and then the URLs of all clients: {}",
            durability.name(),
            self.within(durability.set()),
        )
    }

    /// Returns the comment that marks the tables of this version.
    pub(in crate::store) fn tables_version() -> String {
        format!("tables of rlock, version {}", version(TABLES))
    }

    /// Returns the end of the names of this version's functions.
    pub(in crate::store) fn functions_version() -> &'static str {
        &VERSION
    }

    /// Returns the name and the definition of each function of this version.
    pub(in crate::store) fn functions(&self) -> Vec<(String, String)> {
        let definitions = self.within(&with_numbers(FUNCTIONS));
        let start = format!("CREATE FUNCTION \"{}\".", self.name);
        let definitions = definitions.split(&start).skip(1);
        let of_name = |definition: &str| {
            let name = definition.split('(').next().unwrap_or_default();
            (name.to_owned(), definition.to_owned())
        };
        definitions.map(of_name).collect()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(durability: Durability) -> Schema {
        let name = "apart".to_owned();
        Schema { name, durability }
    }

    #[test]
    fn a_statement_names_the_functions_of_its_version_and_the_tables_of_all() {
        let statement = "SELECT rlock.renew($1, rlock.holder) FROM rlock.lock (a), 'rlock:x'";
        let expected = format!(
            "SELECT \"apart\".renew_{}($1, \"apart\".holder) FROM \"apart\".lock (a), 'rlock:x'",
            *VERSION
        );
        assert_eq!(apart(Durability::Disk).within(statement), expected);
    }

    #[test]
    fn the_sql_of_a_schema_names_no_other_schema_and_has_each_function() {
        for durability in [Durability::Disk, Durability::Memory] {
            let schema = apart(durability);
            let create = schema.create();
            let statements = create
                .lines()
                .filter(|line| !line.trim_start().starts_with("--"));
            let statements: Vec<_> = statements.collect();
            let statements = statements.join("\n");
            assert!(!statements.contains("rlock."), "{statements}");
            assert!(
                !statements.contains('{') || !statements.contains("_}"),
                "{statements}"
            );
            for (name, definition) in schema.functions() {
                assert!(
                    statements.contains(&format!("FUNCTION \"apart\".{name}(")),
                    "{name}"
                );
                assert!(definition.contains("$$"), "{definition}");
            }
        }
    }
}
