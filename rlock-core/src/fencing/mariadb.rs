//! The statements with which MariaDB (10.5 or later, InnoDB) checks a fence.
//!
//! The guard waits while another transaction has the row, at most for `innodb_lock_wait_timeout`. The errors 1205
//! (that time-out), 1213 (a deadlock) and 1020 (with `innodb_snapshot_isolation`) do not mean that the transaction is
//! stale: roll back, and run the transaction again.
//!
//! Under REPEATABLE READ, the default, the first `SELECT` fixes what all later ones see. So run none before the
//! guard, and do not begin the transaction `WITH CONSISTENT SNAPSHOT`.

/// Creates the table, unless it exists. The key is binary, because texts that differ only in case are equal by default.
pub const TABLE: &str = super::mysql::TABLE;

/// Takes the row of the key (the first `?`) for the token (the second `?`), and returns the column `token`: the
/// larger of the row's token and the transaction's. If that is not the transaction's, the transaction is stale.
pub const GUARD: &str = "\
INSERT INTO rlock_fence (`key`, token) VALUES (?, ?)
ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))
RETURNING token";
