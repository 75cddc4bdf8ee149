//! The statements with which Postgres checks a fence.
//!
//! The guard may be the first statement of a transaction at any isolation level. It waits while another transaction
//! has the row. When that one commits, a guard under READ COMMITTED goes on with the row as committed. Under
//! REPEATABLE READ and SERIALIZABLE, the guard fails with SQLSTATE 40001, which does not mean that its transaction is
//! stale: run the transaction again.
//!
//! Postgres refuses a key with U+0000, because its texts cannot contain that character.

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
