//! Tests single inputs to one machine, and what it wants done then.

mod acquires;
mod client;
mod counts;
mod downgrades;
mod ends;
mod extended;
mod handovers;
mod leases;
mod losses;
mod modes;
mod queries;
mod releases;
mod renewals;
mod slots;
mod tokens;
mod unpolled;
mod waits;

use self::client::*;
use super::super::*;
use crate::{
    lost::LostCause,
    mode::LockMode,
    options::{LockOptions, Wait},
    store::{Acquired, Asks, Change, QueuePlace, RenewalOutcome, StoreRequest, TakenBy},
};
