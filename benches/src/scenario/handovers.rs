//! How many tasks of one process may have a lock in a row while other processes wait: what that brings,
//! and what the others wait for it.

use anyhow::Result;

use super::{Plan, processes};
use crate::{contestant::Kind, pace::Pace, results::Results, runtime};

/// More than the most that are compared, but for the last: only those who wait already when the lock
/// comes to their process are served in a row.
const TASKS: u32 = 32;

pub(super) fn run(plan: &Plan) -> Result<Results> {
    let kinds = [
        Kind::OursStrict,
        Kind::OursHandovers4,
        Kind::Ours,
        Kind::OursHandovers64,
    ];
    let pace = Pace {
        contended: plan.pace.contended * 3,
        ..plan.pace.clone()
    };
    let plan = Plan {
        pace,
        ..plan.clone()
    };
    runtime::current_thread()?.block_on(processes::measure(&plan, &kinds, TASKS))
}
