//! Measures this framework, floors and peers in one run. A floor is the minimum for the same task.
//! All take turns, so that noise affects them equally.
//!
//! `README.md` explains how to run it, and how to read its output.

mod bounds;
mod clock;
mod contention;
mod contestant;
mod delay;
mod earlier;
mod grants;
mod json;
mod measure;
mod metric;
mod network;
mod options;
mod pace;
mod results;
mod runtime;
mod say;
mod scenario;
mod table;
mod worker;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context, Result};
use clap::Parser as _;
use options::{Command, Options};
use rlock_benches::statistics;

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if let Some(Command::Worker { role }) = options.command {
        worker::work(serde_json::from_str(&role)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let started = Instant::now();
    let pace = options.pace();
    let _spinning = if options.awake {
        runtime::current_thread()?.block_on(worker::keep_awake())?
    } else {
        Vec::new()
    };
    let mut all = Vec::new();
    for scenario in options.scenarios() {
        for network in options.networks() {
            let results = measure::measure(scenario, &pace, network)
                .with_context(|| format!("{}{network}", scenario.title()))?;
            if let Some(results) = results {
                println!("{}", table::table(&results));
                all.push(results);
            }
        }
    }
    let verdicts = bounds::verdicts(&all);
    println!("{}", table::verdicts(&verdicts));
    println!("{NOTES}");

    let folder = folder()?;
    let json = options.json.unwrap_or_else(|| folder.join("results.json"));
    write(&json, &json::json(&all, &verdicts)?)?;
    println!(
        "{:.0} s; figures in {}",
        started.elapsed().as_secs_f64(),
        json.display()
    );
    if let Some(path) = &options.against {
        let earlier = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        for line in earlier::worse(&all, &earlier)? {
            println!("worse: {line}");
        }
    }
    let kept = verdicts.iter().all(|verdict| verdict.holds);
    Ok(if options.check && !kept {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

const NOTES: &str = "\
In brackets: the ratio to the first row, as the median of the rounds' ratios.
A change is a grant to another task than the one before. Commands are those of clients, without what
scripts call; executed ones are all that the server counts. Waits count from the call of acquire to the grant.
Peers that poll sleep 5 ms between attempts where they wait (rslock: up to 5 ms), instead of their
defaults of 100 ms and more; distributed-lock does not wait at all, so its caller polls for it.
Leases: 30 s; idle locks 3 s, but 1.5 s for rslock, which renews half a second before the end, and 12 s where they are 100,000.";

/// Returns `bench` in cargo's target directory, which contains the directory of this program's
/// profile.
fn folder() -> Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.parent().and_then(Path::parent);
    Ok(target
        .context("the program lies in a folder")?
        .join("bench"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}
