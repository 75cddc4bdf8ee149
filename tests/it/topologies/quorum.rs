//! Locks on several servers that know nothing of each other: what more than half of them grant.

mod batch;
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
mod tokens;
mod validity;
mod waiting;
mod ways;
