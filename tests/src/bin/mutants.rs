//! Puts known bugs of distributed locks into copies of the sources, one at a time in each, and requires that a test fails for each.
//!
//! `cargo run -p rlock-tests --bin mutants [-- name …]`
//!
//! The copies, and the output of the tests, are below the target directory.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    env, fs, io, iter,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::Mutex,
    thread,
    time::Instant,
};

use rlock_tests::mutants::{Mutant, TestName, catalogue, workspace};

/// The number of copies. Most tests that notice a bug fail only by a time-out of a minute.
const JOBS: usize = 3;
/// The seconds after which a build hangs, and a test.
const BUILD_LIMIT: &str = "3600";
const TEST_LIMIT: &str = "300";

fn main() -> ExitCode {
    let names: Vec<String> = env::args().skip(1).collect();
    let mut mutants = catalogue();
    let known: HashSet<_> = mutants.iter().map(|mutant| mutant.name.clone()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(*name)) {
        eprintln!("there is no mutant {unknown} in tests/mutants");
        return ExitCode::from(2);
    }
    mutants.retain(|mutant| names.is_empty() || names.contains(&mutant.name));
    let gates: io::Result<Vec<_>> = (0..JOBS).map(Gate::open).collect();
    let gates = match gates {
        Ok(gates) => gates,
        Err(error) => {
            eprintln!("cannot copy the sources: {error}");
            return ExitCode::from(2);
        }
    };
    // A test that also fails without a mutant says nothing about one, so all tests run without any first: in one copy, which is
    // compiled once.
    let tests: BTreeSet<_> = mutants.iter().map(|mutant| &mutant.caught_by).collect();
    let sound = share(&gates, tests, |_, test| {
        (test, gates[0].run(test, &test.path))
    });
    let sound: BTreeMap<_, _> = sound.into_iter().collect();
    let missed = share(&gates, &mutants, |gate, mutant| {
        let caught = gate.catches(mutant, &sound[&mutant.caught_by]);
        (!caught).then_some(&*mutant.name)
    });
    let missed: Vec<&str> = missed.into_iter().flatten().collect();
    let caught = mutants.len() - missed.len();
    println!("{caught} of {} mutants caught", mutants.len());
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("not caught: {}", missed.join(" "));
    ExitCode::FAILURE
}

/// Calls `each` for every item, in a thread for each copy. Returns the results in any order.
fn share<T: Send, R: Send>(
    gates: &[Gate],
    items: impl IntoIterator<Item = T, IntoIter: Send>,
    each: impl Fn(&Gate, T) -> R + Sync,
) -> Vec<R> {
    let queue = Mutex::new(items.into_iter());
    let next = || queue.lock().expect("no panic").next();
    thread::scope(|scope| {
        let job = |gate| iter::from_fn(next).map(|item| each(gate, item)).collect();
        let jobs = gates.iter().map(|gate| scope.spawn(move || job(gate)));
        let jobs: Vec<thread::ScopedJoinHandle<'_, Vec<R>>> = jobs.collect();
        let results = jobs.into_iter().map(|job| job.join().expect("no panic"));
        results.flatten().collect()
    })
}

/// A copy in which mutants are tried.
struct Gate {
    directory: PathBuf,
    _lock: fs::File,
}

/// What a test says about the sources.
enum Verdict {
    Passes,
    /// With its last panic message.
    Fails(String),
    /// The sources do not compile, or there is no such test.
    NotRun(String),
}

impl Gate {
    fn open(number: usize) -> io::Result<Self> {
        let program = env::current_exe()?;
        let target = program
            .ancestors()
            .nth(2)
            .expect("below a target directory");
        let directory = target.join(format!("mutants-by-hand/{number}"));
        fs::create_dir_all(directory.join("outputs"))?;
        let lock = fs::File::create(directory.join("lock"))?;
        lock.try_lock()?;
        synchronize(workspace(), &directory.join("source"))?;
        Ok(Self {
            directory,
            _lock: lock,
        })
    }

    /// Tries a mutant, prints what its test says, and returns whether it is caught.
    fn catches(&self, mutant: &Mutant, sound: &Verdict) -> bool {
        let test = &mutant.caught_by.path;
        let began = Instant::now();
        let verdict = match sound {
            Verdict::Passes => &self.try_one(mutant),
            Verdict::Fails(why) => &Verdict::NotRun(format!("{test} fails without it: {why}")),
            Verdict::NotRun(_) => sound,
        };
        let said = match verdict {
            Verdict::Fails(why) => why.clone(),
            Verdict::Passes => format!("MISSED by {test}"),
            Verdict::NotRun(why) => format!("NOT TRIED: {why}"),
        };
        let seconds = began.elapsed().as_secs_f64();
        println!("{seconds:>6.1} s  {}: {said}", mutant.name);
        matches!(verdict, Verdict::Fails(_))
    }

    fn try_one(&self, mutant: &Mutant) -> Verdict {
        let root = self.directory.join("source");
        let [sound, broken] = match mutant.texts(&root) {
            Ok(texts) => texts,
            Err(why) => return Verdict::NotRun(why),
        };
        let write = |text| fs::write(mutant.path(&root), text).expect("the copy is writable");
        write(broken);
        let verdict = self.run(&mutant.caught_by, &mutant.name);
        write(sound);
        verdict
    }

    /// Runs a test, and keeps its output in a file with this name.
    fn run(&self, test: &TestName, name: &str) -> Verdict {
        let target: &[&str] = if test.is_unit {
            &["-p", "rlock-core", "--lib"]
        } else {
            &["-p", "rlock-tests", "--test", "it"]
        };
        let built = self
            .cargo(BUILD_LIMIT)
            .args(target)
            .arg("--no-run")
            .output();
        let built = built.expect("timeout is there");
        if !built.status.success() {
            return Verdict::NotRun(String::from_utf8_lossy(&built.stderr).into_owned());
        }
        let mut run = self.cargo(TEST_LIMIT);
        run.args(target)
            .args(["--", "--exact", "--include-ignored"]);
        let output = run.arg(&test.path).output().expect("timeout is there");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let _ = fs::write(self.directory.join("outputs").join(name), &said);
        match output.status.success() {
            true if said.contains("test result: ok. 1 passed") => Verdict::Passes,
            true => Verdict::NotRun(format!("there is no test {}", test.path)),
            false => Verdict::Fails(complaint(&said)),
        }
    }

    /// Returns a command for `cargo test` in the copy, which ends with all of its processes after these seconds.
    fn cargo(&self, limit: &str) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=10", limit])
            .args(["cargo", "test", "--locked", "--profile=mutants"])
            .arg("--target-dir")
            .arg(self.directory.join("target"))
            .current_dir(self.directory.join("source"))
            .env("CARGO_INCREMENTAL", "1")
            .env("RLOCK_TEST_ROUNDS", "5")
            // The same sequences each time, so that a bug is not caught by chance.
            .env("PROPTEST_RNG_SEED", "1")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null());
        // Cargo's variables for this program's package would run build scripts again.
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
                command.env_remove(name);
            }
        }
        command
    }
}

/// Returns the last panic message and its place. Some tests panic before on purpose.
fn complaint(said: &str) -> String {
    let Some((_, last)) = said.rsplit_once("panicked at ") else {
        return "it ended without a word, or hung".to_owned();
    };
    let lines = last.lines().map(str::trim);
    lines.take(4).collect::<Vec<_>>().join(" ")
}

/// Makes a directory equal to another one. Leaves equal files as they are, so that cargo compiles only the others.
fn synchronize(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut wanted = HashSet::new();
    for entry in fs::read_dir(from)? {
        let (source, name) = {
            let entry = entry?;
            (entry.path(), entry.file_name())
        };
        // Follows links, because the page of the attribute is one.
        let kind = fs::metadata(&source)?;
        if name == ".git" || name == "target" || to.starts_with(&source) {
            continue;
        }
        let copy = to.join(&name);
        if kind.is_dir() {
            synchronize(&source, &copy)?;
        } else {
            let text = fs::read(&source)?;
            if fs::read(&copy).ok().as_ref() != Some(&text) {
                fs::write(&copy, text)?;
            }
        }
        wanted.insert(name);
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if wanted.contains(&entry.file_name()) {
        } else if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
