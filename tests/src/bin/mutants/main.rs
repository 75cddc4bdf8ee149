//! The mutation gate: applies known bugs of distributed locks, one at a time, and requires that a
//! test fails for each.
//!
//! `cargo run -p rlock-tests --bin mutants [-- [--list] [name …]]`
//!
//! The gate copies the sources to a directory below the target directory, and changes only the
//! copy. The output of the tests is kept there, too.

mod build;
mod copy;
mod report;
mod trial;

use std::{
    collections::HashMap,
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use rlock_tests::mutants::{Mutant, TestName, catalogue};

use self::{
    build::{Builder, Built},
    copy::Copy,
    report::{Outcome, Row},
    trial::{Verdict, trial},
};

/// The shortest limit after which a test counts as hanging.
const SHORTEST_LIMIT: Duration = Duration::from_secs(60);
/// The limit as a multiple of the time without any mutant.
const LIMIT: u32 = 5;
/// The time limit of a test without a mutant, because the simulator takes minutes on a busy machine.
const LONGEST: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let mut names = Vec::new();
    let mut list = false;
    for word in env::args().skip(1) {
        match word.as_str() {
            "--list" => list = true,
            option if option.starts_with('-') => {
                return give_up(&format!("unknown option {option}; there is --list"));
            }
            _ => names.push(word),
        }
    }
    let mutants = match chosen(&names) {
        Ok(mutants) => mutants,
        Err(why) => return give_up(&why),
    };
    if list {
        mutants.iter().for_each(report::describe);
        return ExitCode::SUCCESS;
    }
    match Gate::open(&mutants) {
        Ok(gate) => report::table(&gate.try_all(&mutants)),
        Err(why) => give_up(&why),
    }
}

fn give_up(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(2)
}

/// Returns the mutants with these names; all without names.
fn chosen(names: &[String]) -> Result<Vec<Mutant>, String> {
    let mut mutants = catalogue();
    if let Some(unknown) = names
        .iter()
        .find(|name| mutants.iter().all(|mutant| mutant.name != **name))
    {
        return Err(format!("there is no mutant {unknown}; --list names all"));
    }
    mutants.retain(|mutant| names.is_empty() || names.contains(&mutant.name));
    Ok(mutants)
}

/// Returns a directory below the target directory of this program.
fn working_directory() -> PathBuf {
    let program = env::current_exe().expect("this program lies somewhere");
    let target = program.ancestors().nth(2);
    target
        .expect("below a target directory")
        .join("mutation-gate")
}

/// Locks this directory for this process until the returned file is closed.
fn alone_in(directory: &Path) -> Result<File, String> {
    let open = || {
        fs::create_dir_all(directory)?;
        File::create(directory.join("lock"))
    };
    let lock = open().map_err(|error| format!("{}: {error}", directory.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(error) => Err(format!("{} is in use: {error}", directory.display())),
    }
}

/// The copy in which mutants are tried.
struct Gate {
    _alone: File,
    copy: Copy,
    builder: Builder,
    logs: PathBuf,
    limits: HashMap<TestName, Duration>,
}

impl Gate {
    /// Copies the sources, and requires that all tests of the mutants pass.
    fn open(mutants: &[Mutant]) -> Result<Self, String> {
        let here = working_directory();
        let alone = alone_in(&here)?;
        let copy = Copy::of_workspace(&here.join("source"));
        let builder = Builder::new(copy.root(), &here.join("target"));
        let mut gate = Self {
            _alone: alone,
            copy,
            builder,
            logs: here.join("logs"),
            limits: HashMap::new(),
        };
        let tests: Vec<_> = mutants.iter().flat_map(|one| &one.caught_by).collect();
        println!("building without a mutant in {}", here.display());
        let built = gate.builder.build(tests.iter().map(|test| &test.binary));
        let built = built.map_err(|why| format!("the tests do not compile:\n{why}"))?;
        for test in tests {
            if gate.limits.contains_key(test) {
                continue;
            }
            let limit = gate.pass(&built, test)?;
            gate.limits.insert(test.clone(), limit);
        }
        Ok(gate)
    }

    /// Requires that a test passes, and returns its limit with a mutant.
    fn pass(&self, built: &Built, test: &TestName) -> Result<Duration, String> {
        let started = Instant::now();
        let log = self.logs.join(format!("none--{}.log", file_name(test)));
        let verdict = trial(built, test, &log, LONGEST);
        let took = started.elapsed();
        match verdict {
            Verdict::Passed => {
                println!("{:>6.1} s  {test}", took.as_secs_f64());
                Ok(SHORTEST_LIMIT.max(took * LIMIT))
            }
            Verdict::Failed(why) => Err(format!("{test} fails without a mutant: {why}")),
            Verdict::Hung(_) => Err(format!("{test} hangs without a mutant")),
            Verdict::NotRun => Err(format!("there is no test {test}")),
        }
    }

    fn try_all(&self, mutants: &[Mutant]) -> Vec<Row> {
        let try_one = |mutant: &Mutant| {
            let started = Instant::now();
            let outcome = self.try_one(mutant);
            let row = Row {
                name: mutant.name.clone(),
                outcome,
                took: started.elapsed(),
            };
            report::progress(&row);
            row
        };
        mutants.iter().map(try_one).collect()
    }

    fn try_one(&self, mutant: &Mutant) -> Outcome {
        let applied = match self.copy.apply(mutant) {
            Ok(applied) => applied,
            Err(why) => return Outcome::DoesNotApply(why),
        };
        let binaries = mutant.caught_by.iter().map(|test| &test.binary);
        let built = match self.builder.build(binaries) {
            Ok(built) => built,
            Err(why) => return Outcome::DoesNotCompile(why),
        };
        let caught = mutant.caught_by.iter().find_map(|test| {
            let log = format!("{}--{}.log", mutant.name, file_name(test));
            match trial(&built, test, &self.logs.join(log), self.limits[test]) {
                Verdict::Passed | Verdict::NotRun => None,
                Verdict::Failed(why) | Verdict::Hung(why) => Some((test.clone(), why)),
            }
        });
        drop(applied);
        match caught {
            Some((by, why)) => Outcome::Caught { by, why },
            None => Outcome::Survived,
        }
    }
}

fn file_name(test: &TestName) -> String {
    test.to_string().replace("::", ".")
}
