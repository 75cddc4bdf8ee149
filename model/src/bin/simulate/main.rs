//! Simulates fleets of clients under faults: the machine that ships, against the rules of the embedded store.
//!
//! ```sh
//! scripts/simulate --seed 1 --inputs 1000000
//! ```
//!
//! A seed draws the clients, their options and the faults, and repeats the run exactly. Time is virtual.

mod clients;
mod drops;
mod extensions;
mod failover;
mod known;
mod network;
mod notes;
mod plan;
mod rules;
mod servers;
mod shrink;
mod store;
mod strikes;
mod tasks;
mod world;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use rlock_proto::{few, key, lease, lost, machine, mode, options, owner, wait};

use self::{
    known::Seen,
    plan::{Part, Plan, WorldKind},
    world::{MS, World},
};

/// Runs clients, servers and a network under faults, in virtual time.
#[derive(Parser)]
struct Orders {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The inputs of each seed.
    #[arg(long, default_value_t = 1_000_000)]
    inputs: u64,
    /// Goes on with further seeds for this many seconds.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// The kind of world; drawn by the seed by default.
    #[arg(long)]
    world: Option<WorldKind>,
    /// Prints how often each fault and each change of a phase occurred.
    #[arg(long)]
    coverage: bool,
    /// Prints this many last lines of the trace of a failure. With 0, does not look for a smaller run.
    #[arg(long, default_value_t = 200)]
    lines: usize,
    /// Lets clients stay at a master that was replaced until it is demoted.
    #[arg(long)]
    stay: bool,
    /// Prints the trace of a run that passes, too.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let orders = Orders::parse();
    // A failed check of the machine is printed with its run.
    std::panic::set_hook(Box::new(|info| shrink::note_panic(&info.to_string())));
    let (mut totals, started) = (Totals::default(), Instant::now());
    while totals.runs < orders.seeds || started.elapsed().as_secs() < orders.seconds {
        let seed = orders.seed.wrapping_add(totals.runs);
        let mut plan = Plan::draw(&mut fastrand::Rng::with_seed(seed), orders.world);
        plan.stays = orders.stay;
        let began = Instant::now();
        match shrink::run(seed, &plan, orders.inputs, orders.trace) {
            Ok(world) => totals.add(seed, world, began.elapsed()),
            Err(failed) => {
                let world = orders
                    .world
                    .map(|world| format!(" --world {}", world.name()));
                let (inputs, world) = (orders.inputs, world.unwrap_or_default());
                println!("again: --seed {seed} --inputs {inputs}{world}");
                report(*failed, orders.lines);
                return ExitCode::FAILURE;
            }
        }
    }
    totals.print(started.elapsed(), orders.coverage);
    ExitCode::SUCCESS
}

/// The sums of all runs.
#[derive(Default)]
struct Totals {
    runs: u64,
    inputs: u64,
    holds: u64,
    faults: Vec<u64>,
    seen: Seen,
}

impl Totals {
    /// Prints a run, and adds it.
    fn add(&mut self, seed: u64, mut world: World, took: Duration) {
        let counts = &world.counts;
        println!(
            "seed {seed} {}: {} inputs, {} holds, {} faults, {} excused, {} stale writes, \
             longest idle {} ms, digest {:016x}, {:.1} s",
            world.plan.world.name(),
            world.inputs,
            counts.holds,
            world.faults.iter().sum::<u64>(),
            counts.excused,
            counts.stale_writes,
            counts.longest_idle / MS,
            world.digest(),
            took.as_secs_f64(),
        );
        world
            .take_trace()
            .iter()
            .for_each(|line| println!("{line}"));
        self.runs += 1;
        self.inputs += world.inputs;
        self.holds += world.counts.holds;
        self.faults.resize(Part::ALL.len(), 0);
        let faults = self.faults.iter_mut().zip(&world.faults);
        let phases = self
            .seen
            .iter_mut()
            .flatten()
            .zip(world.seen.iter().flatten());
        faults
            .chain(phases)
            .for_each(|(all, of_run)| *all += of_run);
    }

    fn print(&self, took: Duration, coverage: bool) {
        let faults: u64 = self.faults.iter().sum();
        #[expect(clippy::cast_precision_loss, reason = "printed")]
        let speed = self.inputs as f64 / took.as_secs_f64();
        println!(
            "{} seeds, {} inputs, {} holds, {faults} faults, 0 violations, {:.0} s: \
             {speed:.0} inputs a second",
            self.runs,
            self.inputs,
            self.holds,
            took.as_secs_f64(),
        );
        if !coverage {
            return;
        }
        for fault in Part::faults() {
            println!("{fault:<32} {:>12}", self.faults[fault as usize]);
        }
        let phases = [
            "asking",
            "handed over",
            "held",
            "retained",
            "lost",
            "ended",
            "none",
        ];
        for (from, row) in phases.iter().zip(&self.seen) {
            for (to, times) in phases.iter().zip(row).filter(|(_, times)| **times > 0) {
                println!("{from:>11} -> {to:<11} {times:>12}");
            }
        }
    }
}

fn report(failed: shrink::Failed, most: usize) {
    let print = |title: &str, run: &shrink::Failed| {
        let (rule, what) = (run.violation.rule, &run.violation.what);
        println!(
            "{title} seed {} after {} inputs: {rule}\n  {what}\n  {}\n",
            run.seed, run.inputs, run.plan
        );
    };
    print("a rule is broken:", &failed);
    if most == 0 {
        return;
    }
    let least = shrink::shrink(failed);
    print("a smaller run:", &least);
    let skipped = least.trace.len().saturating_sub(most);
    let lines = least.trace.iter().skip(skipped);
    lines.for_each(|line| println!("{line}"));
}
