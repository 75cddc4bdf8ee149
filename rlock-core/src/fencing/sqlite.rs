//! The statements with which SQLite (3.35 or later) checks a fence.
//!
//! Only one transaction at a time can write to the file. Begin with `BEGIN IMMEDIATE`, so that a transaction waits at
//! its start (`PRAGMA busy_timeout`) instead of failing in the middle.

/// Creates the table, unless it exists.
pub const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS rlock_fence (
  key TEXT PRIMARY KEY NOT NULL,
  token INTEGER NOT NULL
) WITHOUT ROWID";

/// Takes the row of the key `?1` for the token `?2`, and returns the column `token`. Returns no row if the token is stale.
pub const GUARD: &str = "\
INSERT INTO rlock_fence (key, token) VALUES (?1, ?2)
ON CONFLICT (key) DO UPDATE SET token = excluded.token WHERE rlock_fence.token <= excluded.token
RETURNING token";
