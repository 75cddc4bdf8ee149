-- Creates what the schema lacks: the tables, which all versions share, and the functions of this version. Leaves tables that
-- exist as they are, and refuses those that this version cannot use.
DO $create$
DECLARE
  version text;
BEGIN
  -- One client creates them, while the others wait and then find them.
  PERFORM pg_advisory_xact_lock(hashtextextended('rlock {SCHEMA}', 0));
  -- Reads a table, because only then does the session learn what another one has created while it waited.
  IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = '{SCHEMA}') THEN
    CREATE SCHEMA "{SCHEMA}";
  END IF;
  IF to_regclass('rlock.lock') IS NULL THEN
{TABLES}
    COMMENT ON TABLE rlock.lock IS '{VERSION}';
  END IF;
  version := coalesce(obj_description('rlock.lock'::regclass, 'pg_class'), 'tables of other software');
  IF version <> '{VERSION}' THEN
    RAISE EXCEPTION 'the schema `{SCHEMA}` has %, and this version of rlock needs {VERSION}; name another schema with `?schema=`, or drop this one once no client uses it', version;
  END IF;
  IF EXISTS (
    SELECT FROM pg_class WHERE oid IN ('rlock.lock'::regclass, 'rlock.holder'::regclass, 'rlock.waiter'::regclass)
      AND relpersistence <> '{PERSISTENCE}'
  ) THEN
    RAISE EXCEPTION '{OTHER_DURABILITY}';
  END IF;
{FUNCTIONS}
END $create$;
