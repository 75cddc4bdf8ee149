//! A quorum of independent servers: a majority grants each lock.

mod five;
mod late;
mod outages;
mod permissions;
mod refusals;
mod restored;
mod same;
pub(crate) mod split;
mod tokens;
mod validity;
mod waiting;
mod ways;

pub(crate) use five::{ALL, Servers, give_to_another};
