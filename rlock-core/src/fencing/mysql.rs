//! The statements with which MySQL (InnoDB) checks a fence. They also work on MariaDB, where the tests run them.
//!
//! MySQL has no `RETURNING`, so a second statement reads the token. The guard waits while another transaction has the
//! row, at most for `innodb_lock_wait_timeout`. The errors 1205 (that time-out) and 1213 (a deadlock) do not mean
//! that the transaction is stale: roll back, and run the transaction again.
//!
//! Under REPEATABLE READ, the default, the first plain `SELECT` fixes what all later ones see. So run none before the
//! guard, and do not begin the transaction `WITH CONSISTENT SNAPSHOT`.

/// Creates the table, unless it exists. The key is binary, because texts that differ only in case are equal by default.
pub const TABLE: &str = "\
CREATE TABLE IF NOT EXISTS rlock_fence (
  `key` varbinary(1024) NOT NULL PRIMARY KEY,
  token bigint NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC";

/// Takes the row of the key (the first `?`) for the token (the second `?`), unless the row has a larger one.
pub const GUARD: &str = "\
INSERT INTO rlock_fence (`key`, token) VALUES (?, ?)
ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))";

/// Returns the column `token` of the row of the key `?`. If it is not the transaction's, the transaction is stale.
pub const TOKEN: &str = "SELECT token FROM rlock_fence WHERE `key` = ? FOR UPDATE";
