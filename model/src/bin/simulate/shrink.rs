//! Makes a failure small: fewer clients, faults and options, and fewer inputs.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use crate::{
    judge::{Rule, Violation},
    plan::Plan,
    world::World,
};

/// How long to look for a smaller failure.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many seeds are tried for each smaller plan.
const SEEDS: u64 = 24;

/// A run that broke a rule.
pub(crate) struct Failed {
    pub(crate) seed: u64,
    pub(crate) plan: Plan,
    pub(crate) violation: Violation,
    pub(crate) inputs: u64,
    /// After how many inputs its faults would have ended.
    limit: u64,
    pub(crate) trace: Vec<String>,
}

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Notes the text of a panic.
pub(crate) fn note_panic(text: &str) {
    PANIC.replace(text.to_owned());
}

/// Runs a world. A panic of the machine's own checks is a violation, too.
pub(crate) fn run(
    seed: u64,
    plan: &Plan,
    inputs: u64,
    is_traced: bool,
) -> Result<World, Box<Failed>> {
    let mut world = World::new(seed, plan.clone(), is_traced);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run(inputs)));
    let violation = match outcome {
        Ok(Ok(())) => return Ok(world),
        Ok(Err(violation)) => violation,
        Err(_) => Violation {
            rule: Rule::IsConsistent,
            what: PANIC.take(),
        },
    };
    Err(Box::new(Failed {
        seed,
        plan: plan.clone(),
        violation,
        inputs: world.inputs,
        limit: inputs,
        trace: world.take_trace(),
    }))
}

/// Returns a smaller run that breaks the same rule, with its trace.
pub(crate) fn shrink(failed: Box<Failed>) -> Box<Failed> {
    let (end, rule) = (Instant::now() + PATIENCE, failed.violation.rule);
    let mut least = failed;
    let mut goes_on = true;
    while goes_on && Instant::now() < end {
        goes_on = false;
        // The same plan with another seed may fail sooner.
        let plans = std::iter::once(least.plan.clone()).chain(least.plan.simpler());
        for plan in plans {
            let is_same = plan == least.plan;
            let most = if is_same {
                least.inputs / 2
            } else {
                least.inputs * 2
            };
            let found = (0..SEEDS)
                .take_while(|_| Instant::now() < end)
                .find_map(|n| {
                    let failed =
                        run(least.seed.wrapping_add(n * 7_919), &plan, most, false).err()?;
                    (failed.violation.rule == rule && failed.inputs <= most).then_some(failed)
                });
            if let Some(smaller) = found {
                least = smaller;
                goes_on = true;
                break;
            }
        }
    }
    let traced = run(least.seed, &least.plan, least.limit, true);
    traced.err().unwrap_or(least)
}
