//! Programs of users who come from another library, as `docs/coming-from.md` translates its calls. The fenced transaction is in
//! `tests/sql`, because it needs a database.

mod extend_active_lock;
mod extend_in_chunks;
mod leader_latch;
mod leaders_over_shards;
mod once_per_tick;
mod polite_request;
mod readiness;
mod several_permits;
mod unlock_elsewhere;

use std::time::Duration;

/// After this time, a program hangs.
const LONG: Duration = Duration::from_secs(60);
