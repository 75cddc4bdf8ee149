//! Compares the schema of a Postgres database with the one that this version needs, and checks what the role may do there.

use tokio_postgres::Row;

use super::findings::Finding;
use crate::store::{
    StoreError,
    postgres::{LookingSession, PostgresEndpoint, Schema},
};

const CHECK: &str = "schema";

/// What an operator can do about a schema that this role may not change.
const REMEDY: &str = "execute what `rlock postgres schema` prints, with a role that may create it";

/// What the schema has, which needs no permission to read. The name of each function ends with its version.
const FACTS: &str = "SELECT
  current_user::text AS role,
  CASE WHEN it IS NULL THEN has_database_privilege(current_database(), 'CREATE')
    ELSE has_schema_privilege(it, 'CREATE') END AS may_create,
  it IS NOT NULL AND has_schema_privilege(it, 'USAGE') AS may_use,
  (SELECT coalesce(obj_description(oid, 'pg_class'), 'tables of other software') FROM pg_class
    WHERE relnamespace = it AND relname = 'lock') AS tables,
  ARRAY(SELECT relpersistence::text FROM pg_class
    WHERE relnamespace = it AND relname IN ('lock', 'holder', 'waiter')) AS persistence,
  ARRAY(SELECT relname::text FROM pg_class WHERE relnamespace = it AND relname IN ('lock', 'holder', 'waiter') AND NOT (
    has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
    AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')) ORDER BY 1) AS refused_tables,
  ARRAY(SELECT proname::text FROM pg_proc WHERE pronamespace = it ORDER BY oid) AS functions,
  ARRAY(SELECT prosrc FROM pg_proc WHERE pronamespace = it ORDER BY oid) AS sources,
  EXISTS (SELECT FROM pg_proc WHERE pronamespace = it AND NOT has_function_privilege(oid, 'EXECUTE')) AS refuses_functions
  FROM to_regnamespace('\"{SCHEMA}\"') it";

/// Returns the findings about the schema, and about the permissions of the role.
pub(super) async fn compare(
    endpoint: &PostgresEndpoint,
    session: &LookingSession,
) -> Result<Vec<Finding>, StoreError> {
    let schema = endpoint.schema();
    let row = session
        .ask(&FACTS.replace("{SCHEMA}", &schema.name))
        .await?;
    let mut findings = vec![content(schema, &row)];
    findings.extend(other_versions(schema, &row));
    findings.extend(permissions(schema, &row));
    Ok(findings)
}

fn content(schema: &Schema, row: &Row) -> Finding {
    let name = &schema.name;
    let wanted = Schema::tables_version();
    let missing = |what: &str| {
        let text = format!("the schema `{name}` lacks {what}");
        if row.get("may_create") {
            Finding::good(CHECK, format!("{text}, which the first client creates"))
        } else {
            Finding::harm(CHECK, format!("{text}, and this role may not create it"))
                .with_remedy(REMEDY)
        }
    };
    let Some(tables) = row.get::<_, Option<&str>>("tables") else {
        return missing("its tables");
    };
    if tables != wanted {
        let text = format!("the schema `{name}` has {tables}, and this version needs {wanted}");
        let remedy = "name another schema with `?schema=`, or drop this one once no client uses it";
        return Finding::harm(CHECK, text).with_remedy(remedy);
    }
    let persistence: Vec<&str> = row.get("persistence");
    if persistence.len() < 3 {
        let text = format!("the schema `{name}` lacks a table, so it grants no lock");
        return Finding::harm(CHECK, text).with_remedy("drop it once no client uses it");
    }
    let is_as_asked = |is: &&str| *is == schema.durability.persistence();
    if !persistence.iter().all(is_as_asked) {
        return Finding::harm(CHECK, schema.other_durability());
    }
    let (names, sources): (Vec<&str>, Vec<&str>) = (row.get("functions"), row.get("sources"));
    let mut changed = Vec::new();
    for (name, definition) in schema.functions() {
        let Some(at) = names.iter().position(|there| *there == name) else {
            return missing("functions of this version");
        };
        if !definition.contains(&format!("$${}$$", sources[at])) {
            changed.push(format!("`{name}`"));
        }
    }
    if changed.is_empty() {
        return Finding::good(
            CHECK,
            format!("the schema `{name}` is as this version needs it"),
        );
    }
    let changed = changed.join(", ");
    let text = format!("the schema `{name}` has functions that somebody has changed: {changed}");
    Finding::harm(CHECK, text).with_remedy("execute what `rlock postgres schema` prints")
}

/// Names other versions whose functions are still in the schema.
fn other_versions(schema: &Schema, row: &Row) -> Option<Finding> {
    let names: Vec<&str> = row.get("functions");
    let versions = names
        .iter()
        .filter_map(|name| Some(name.rsplit_once('_')?.1));
    let is_other = |version: &&str| {
        let is_version = version.len() == 8 && version.chars().all(|c| c.is_ascii_hexdigit());
        is_version && *version != Schema::functions_version()
    };
    let mut others: Vec<&str> = versions.filter(is_other).collect();
    others.sort_unstable();
    others.dedup();
    if others.is_empty() {
        return None;
    }
    let text = format!(
        "the schema `{}` also has the functions of other versions: `{}`",
        schema.name,
        others.join("`, `")
    );
    let remedy = "drop them once no client of these versions runs, as `rlock postgres schema` says at its end";
    Some(Finding::advice(CHECK, text).with_remedy(remedy))
}

/// Says which permission the role lacks in a schema that exists.
fn permissions(schema: &Schema, row: &Row) -> Option<Finding> {
    const CHECK: &str = "permissions";
    row.get::<_, Option<&str>>("tables")?;
    let role: &str = row.get("role");
    let refused: Vec<&str> = row.get("refused_tables");
    let lacks = if !row.get::<_, bool>("may_use") {
        format!("USAGE on the schema `{}`", schema.name)
    } else if let [table, ..] = refused[..] {
        format!("SELECT, INSERT, UPDATE or DELETE on `{table}`")
    } else if row.get("refuses_functions") {
        "EXECUTE on the functions".to_owned()
    } else {
        return Some(Finding::good(CHECK, "all that locks use"));
    };
    let text = format!("the role `{role}` lacks {lacks}");
    let remedy = format!("execute what `rlock postgres schema --role {role}` prints");
    Some(Finding::harm(CHECK, text).with_remedy(remedy))
}
