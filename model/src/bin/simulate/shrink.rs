//! Makes a failing run small: with fewer clients, faults, options and inputs.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use crate::{
    known::{CONSISTENT, Violation},
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
    limit: u64,
    is_traced: bool,
) -> Result<World, Box<Failed>> {
    let mut world = World::new(seed, plan.clone(), is_traced);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run(limit)));
    let violation = match outcome {
        Ok(Ok(())) => return Ok(world),
        Ok(Err(violation)) => violation,
        Err(_) => Violation {
            rule: CONSISTENT,
            what: PANIC.take(),
        },
    };
    let (inputs, trace) = (world.inputs, world.take_trace());
    Err(Box::new(Failed {
        seed,
        plan: plan.clone(),
        violation,
        inputs,
        limit,
        trace,
    }))
}

/// Returns a smaller run that breaks the same rule, with its trace.
pub(crate) fn shrink(failed: Failed) -> Failed {
    let end = Instant::now() + PATIENCE;
    let mut least = failed;
    while let Some(smaller) = smaller(&least, end) {
        least = *smaller;
    }
    let traced = run(least.seed, &least.plan, least.limit, true);
    traced.err().map_or(least, |failed| *failed)
}

/// Looks for a smaller run until this time.
fn smaller(least: &Failed, end: Instant) -> Option<Box<Failed>> {
    // The same plan with another seed may fail sooner.
    let same = (least.plan.clone(), least.inputs / 2);
    let plans = least
        .plan
        .simpler()
        .into_iter()
        .map(|plan| (plan, least.inputs * 2));
    std::iter::once(same).chain(plans).find_map(|(plan, most)| {
        let seeds = (0..SEEDS).take_while(|_| Instant::now() < end);
        seeds.into_iter().find_map(|n| {
            let failed = run(least.seed.wrapping_add(n * 7_919), &plan, most, false).err()?;
            (failed.violation.rule == least.violation.rule && failed.inputs <= most)
                .then_some(failed)
        })
    })
}
