//! A quorum of independent servers: a majority grants each lock.

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
mod simultaneous;
mod tokens;
mod validity;
mod waiting;
mod ways;
