//! Locks on several servers that know nothing of each other: what more than half of them grant.

#[path = "../common/acl.rs"]
mod acl;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/log.rs"]
mod log;

mod exclusion;
mod far;
mod five;
mod late;
mod losses;
mod outages;
mod permissions;
mod refusals;
mod restarts;
mod same;
mod together;
mod tokens;
mod validity;
mod waiting;
mod ways;
