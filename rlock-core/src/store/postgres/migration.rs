//! The SQL that an operator executes before the first client connects, with the permissions of the clients' role.

use super::{address::PostgresEndpoint, schema::Schema};

/// What a role needs in order to use the locks.
const GRANTS: &str = "GRANT USAGE ON SCHEMA \"{SCHEMA}\" TO {ROLE};
GRANT SELECT, INSERT, UPDATE, DELETE ON rlock.lock, rlock.holder, rlock.waiter TO {ROLE};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA \"{SCHEMA}\" TO {ROLE};
";

/// Drops the functions of all other versions.
const DROP: &str = "DO $drop$ DECLARE other regprocedure; BEGIN
  FOR other IN
    SELECT oid FROM pg_proc WHERE pronamespace = '\"{SCHEMA}\"'::regnamespace AND proname ~ '_[0-9a-f]{8}$' AND proname !~ '_{VERSION}$'
  LOOP EXECUTE 'DROP FUNCTION ' || other; END LOOP;
END $drop$;
";

impl PostgresEndpoint {
    /// Returns the SQL that creates the schema and grants the role its permissions. Without a role, the grants are a comment.
    pub(crate) fn migration(&self, role: Option<&str>) -> String {
        let schema = &self.schema;
        let quoted = role.map(|role| format!("\"{}\"", role.replace('"', "\"\"")));
        let grants = GRANTS.replace("{ROLE}", quoted.as_deref().unwrap_or("app"));
        let (heading, grants) = match role {
            Some(_) => ("What this role needs in order to use the locks:", grants),
            None => (
                "A role needs no more than this in order to use the locks (see `--role`):",
                as_comment(&grants),
            ),
        };
        let text = format!(
            "-- The locks of rlock {}, durability `{}`. You can execute this again, even while clients run.\n\
             {}\n\
             -- {heading}\n\
             {grants}\n\
             -- Each version has functions of its own, so that clients of several versions share the locks. Once no client of\n\
             -- another version runs, this drops its functions:\n\
             {}",
            env!("CARGO_PKG_VERSION"),
            schema.durability.name(),
            schema.create(),
            as_comment(DROP),
        );
        schema
            .within(&text)
            .replace("{SCHEMA}", &schema.name)
            .replace("{VERSION}", Schema::functions_version())
    }
}

fn as_comment(statements: &str) -> String {
    format!("-- {}\n", statements.trim_end().replace('\n', "\n-- "))
}
