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
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant},
};

use rlock_proto::{few, key, lease, lost, machine, mode, options, owner, wait};

use self::{
    known::Seen,
    plan::{Part, Plan, WorldKind},
    world::{MS, World},
};

const HELP: &str = "simulate: runs clients, servers and a network under faults, in virtual time

  --seed <n>       the first seed; 1 by default
  --seeds <n>      the number of seeds; 1 by default
  --inputs <n>     the inputs of each seed; 1,000,000 by default
  --seconds <n>    goes on with further seeds for this time instead
  --world <name>   server, crowd, quorum, calm or modes; drawn by the seed by default
  --coverage       prints how often each fault and each change of a phase occurred
  --lines <n>      the last lines of the trace of a failure; 200 by default
  --stay           clients stay at a master that was replaced until it is demoted
  --trace          prints the trace of a run that passes, too
";

/// The options without a value, and those with a number, and the default of each.
const FLAGS: [&str; 3] = ["--coverage", "--stay", "--trace"];
const NUMBERS: [(&str, u64); 5] = [
    ("--seed", 1),
    ("--seeds", 1),
    ("--inputs", 1_000_000),
    ("--seconds", 0),
    ("--lines", 200),
];

struct Orders {
    numbers: BTreeMap<&'static str, u64>,
    flags: Vec<String>,
    world: Option<WorldKind>,
}

fn orders() -> Result<Orders, String> {
    let (numbers, flags, world) = (BTreeMap::from(NUMBERS), Vec::new(), None);
    let mut orders = Orders {
        numbers,
        flags,
        world,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if FLAGS.contains(&&*word) {
            orders.flags.push(word);
        } else if let Some(number) = orders.numbers.get_mut(&*word) {
            let value = words.next().unwrap_or_default().replace('_', "");
            let value = value.parse();
            *number = value.map_err(|_| format!("`{word}` needs a number"))?;
        } else if word == "--world" {
            let name = words.next().unwrap_or_default();
            let world = WorldKind::ALL
                .into_iter()
                .find(|world| world.name() == name);
            orders.world = Some(world.ok_or(format!("there is no world `{name}`"))?);
        } else if word == "--help" || word == "-h" {
            print!("{HELP}");
            std::process::exit(0);
        } else {
            return Err(format!("`{word}` is unknown"));
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
    let (mut totals, started) = (Totals::default(), Instant::now());
    let has = |flag: &str| orders.flags.iter().any(|given| given == flag);
    let (inputs, seconds) = (orders.numbers["--inputs"], orders.numbers["--seconds"]);
    while totals.runs < orders.numbers["--seeds"] || started.elapsed().as_secs() < seconds {
        let seed = orders.numbers["--seed"].wrapping_add(totals.runs);
        let mut plan = Plan::draw(&mut fastrand::Rng::with_seed(seed), orders.world);
        plan.stays = has("--stay");
        let began = Instant::now();
        match shrink::run(seed, &plan, inputs, has("--trace")) {
            Ok(world) => totals.add(seed, world, began.elapsed()),
            Err(failed) => {
                let world = orders
                    .world
                    .map(|world| format!(" --world {}", world.name()));
                println!(
                    "again: --seed {seed} --inputs {inputs}{}",
                    world.unwrap_or_default()
                );
                report(*failed, orders.numbers["--lines"]);
                return ExitCode::FAILURE;
            }
        }
    }
    totals.print(started.elapsed(), has("--coverage"));
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

fn report(failed: shrink::Failed, most: u64) {
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
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let skipped = least.trace.len().saturating_sub(most);
    let lines = least.trace.iter().skip(skipped);
    lines.for_each(|line| println!("{line}"));
}
