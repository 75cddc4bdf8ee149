//! The number of local hand-overs in a row while other processes wait: its benefit, and its cost
//! for the other processes.

use anyhow::Result;

use super::{Plan, processes};
use crate::{contestant::Kind, pace::Pace, results::Results, runtime};

/// More than the largest compared number, except the last. Only tasks that wait when their process
/// gets the lock are served in a row.
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
