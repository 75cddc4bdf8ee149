//! The statements for Postgres.
//!
//! The guard may be the first statement of a transaction at any isolation level. It waits while another transaction has the
//! row. If that transaction commits, READ COMMITTED goes on with what it wrote. REPEATABLE READ and SERIALIZABLE return
//! SQLSTATE 40001 instead, which is not stale: run the transaction again.
//!
//! Postgres has no text with U+0000, so it refuses a key with that character.

/// Creates the table, unless it exists.
pub const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS rlock_fence (
  key text COLLATE \"C\" PRIMARY KEY,
  token bigint NOT NULL
)";

/// Takes the row of the key `$1` for the token `$2`, and returns the column `token`. Returns no row if the token is stale.
pub const GUARD: &str = "\
INSERT INTO rlock_fence (key, token) VALUES ($1, $2)
ON CONFLICT (key) DO UPDATE SET token = excluded.token WHERE rlock_fence.token <= excluded.token
RETURNING token";
