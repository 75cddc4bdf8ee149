//! Simulates fleets of clients under faults: the machine that ships, against the rules of the embedded store.
//!
//! ```sh
//! cargo run --release -p rlock-model --bin simulate -- --seed 1 --inputs 1000000
//! ```
//!
//! A seed draws the clients, their options and the faults, and repeats the run exactly. Time is virtual.

mod clients;
mod fences;
mod judge;
mod notes;
mod plan;
mod seen;
mod servers;
mod shrink;
mod store;
mod strikes;
mod tasks;
mod transport;
mod words;
mod world;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use self::{
    plan::{Fault, Plan, World as Kind},
    product::{
        engine, error, escape_control, few, info, key, lease, observe, options, owner, wait,
    },
    seen::Seen,
    world::{MS, World},
};

#[expect(
    dead_code,
    unreachable_pub,
    unused_imports,
    unused_macros,
    reason = "the simulation uses a part of them"
)]
#[path = "../../../../rlock-core/src"]
mod product {
    pub(crate) mod error;
    pub(crate) mod escape_control;
    pub(crate) mod few;
    pub(crate) mod info;
    pub(crate) mod key;
    pub(crate) mod lease;
    pub(crate) mod observe;
    pub(crate) mod options;
    pub(crate) mod owner;
    pub(crate) mod wait;

    pub(crate) mod engine {
        pub(crate) mod machine;
    }
}

const HELP: &str = "simulate: runs clients, servers and a network under faults, in virtual time

  --seed <n>       the first seed; 1 by default
  --seeds <n>      the number of seeds; 1 by default
  --inputs <n>     the inputs of each seed; 1,000,000 by default
  --seconds <n>    goes on with further seeds for this time instead
  --world <name>   server, crowd, quorum or calm; drawn by the seed by default
  --coverage       prints which transitions of the machine were taken
  --lines <n>      the last lines of the trace of a failure; 200 by default
  --trace          prints the trace of a run that passes, too
";

struct Orders {
    seed: u64,
    seeds: u64,
    inputs: u64,
    seconds: Option<u64>,
    world: Option<Kind>,
    lines: usize,
    coverage: bool,
    trace: bool,
}

fn orders() -> Result<Orders, String> {
    let mut orders = Orders {
        seed: 1,
        seeds: 1,
        inputs: 1_000_000,
        seconds: None,
        world: None,
        lines: 200,
        coverage: false,
        trace: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("`{word}` needs a value"));
        let number = |text: String| {
            let digits = text.replace('_', "");
            digits
                .parse()
                .map_err(|_| format!("`{text}` is not a number"))
        };
        match word.as_str() {
            "--seed" => orders.seed = number(value()?)?,
            "--seeds" => orders.seeds = number(value()?)?,
            "--inputs" => orders.inputs = number(value()?)?,
            "--seconds" => orders.seconds = Some(number(value()?)?),
            "--world" => {
                let name = value()?;
                let known = Kind::ALL.into_iter().find(|world| world.name() == name);
                // Without a name, the seed draws it.
                if !name.is_empty() {
                    orders.world = Some(known.ok_or(format!("there is no world `{name}`"))?);
                }
            }
            "--lines" => orders.lines = usize::try_from(number(value()?)?).unwrap_or(usize::MAX),
            "--coverage" => orders.coverage = true,
            "--trace" => orders.trace = true,
            "--help" | "-h" => {
                print!("{HELP}");
                std::process::exit(0);
            }
            _ => return Err(format!("`{word}` is unknown")),
        }
    }
    Ok(orders)
}

fn main() -> ExitCode {
    let orders = match orders() {
        Ok(orders) => orders,
        Err(error) => {
            eprint!("{error}\n\n{HELP}");
            return ExitCode::FAILURE;
        }
    };
    // A failed check of the machine is printed with its run.
    std::panic::set_hook(Box::new(|info| shrink::note_panic(&info.to_string())));
    let mut totals = Totals::default();
    let started = Instant::now();
    let goes_on = |runs: u64| match orders.seconds {
        Some(seconds) => started.elapsed().as_secs() < seconds,
        None => runs < orders.seeds,
    };
    while goes_on(totals.runs) {
        let seed = orders.seed.wrapping_add(totals.runs);
        let plan = Plan::draw(&mut fastrand::Rng::with_seed(seed), orders.world);
        let began = Instant::now();
        match shrink::run(seed, &plan, orders.inputs, orders.trace) {
            Ok(world) => totals.add(seed, world, began.elapsed()),
            Err(failed) => {
                let world = orders.world.map_or("", Kind::name);
                println!(
                    "again: --seed {seed} --inputs {} --world '{world}'",
                    orders.inputs
                );
                report(failed, orders.lines);
                return ExitCode::FAILURE;
            }
        }
    }
    totals.print(started.elapsed());
    if orders.coverage {
        for (fault, times) in Fault::ALL.iter().zip(&totals.faults) {
            println!("{:<32} {times:>12}", fault.name());
        }
        totals.seen.print();
    }
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
        println!(
            "seed {seed} {}: {} inputs, {} holds, {} faults, {} excused, {} stale writes, \
             longest idle {} ms, digest {:016x}, {:.1} s",
            world.plan.world.name(),
            world.inputs,
            world.judge.holds,
            world.faults.iter().sum::<u64>(),
            world.judge.excused,
            world.judge.stale_writes,
            world.judge.longest_idle / MS,
            world.digest(),
            took.as_secs_f64(),
        );
        for line in world.take_trace() {
            println!("{line}");
        }
        self.runs += 1;
        self.inputs += world.inputs;
        self.holds += world.judge.holds;
        self.faults.resize(Fault::ALL.len(), 0);
        for (all, of_run) in self.faults.iter_mut().zip(&world.faults) {
            *all += of_run;
        }
        self.seen.add(world.seen);
    }

    fn print(&self, took: Duration) {
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
    }
}

fn report(failed: Box<shrink::Failed>, most: usize) {
    println!(
        "seed {} breaks a rule after {} inputs: {}\n  {}\n  {}",
        failed.seed,
        failed.inputs,
        failed.violation.rule.text(),
        failed.violation.what,
        failed.plan,
    );
    let least = shrink::shrink(failed);
    println!(
        "\na smaller run: seed {}, {} inputs: {}\n  {}\n",
        least.seed, least.inputs, least.violation.what, least.plan,
    );
    // What concerns other keys is left out, if the rule names one.
    let keys = |line: &str| {
        (0..9)
            .filter(|n| line.contains(&format!("k{n}")))
            .collect::<Vec<_>>()
    };
    let broken = keys(&least.violation.what);
    let concerns = |line: &&String| {
        let of_line = keys(line);
        broken.is_empty() || of_line.is_empty() || of_line.iter().any(|key| broken.contains(key))
    };
    let lines: Vec<&String> = least.trace.iter().filter(concerns).collect();
    for line in &lines[lines.len().saturating_sub(most)..] {
        println!("{line}");
    }
}
