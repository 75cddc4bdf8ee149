//! Measures the cost of Lua scripts on the server, to compare different versions of a script.
//!
//! Each call plan (see [`plan`]) names a script, its keys and arguments, and the commands that set
//! the state before each call. The server times every command separately (`INFO commandstats`), so
//! EVALSHA and the other commands do not mix. Plans take turns for several rounds, so that noise
//! affects all of them.

mod caller;
mod plan;

use std::{
    fs,
    ops::Range,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use caller::Caller;
use clap::Parser;
use plan::Plan;
use redis::{Pipeline, RedisError, RedisResult, Script, Value, aio::MultiplexedConnection};
use rlock_testkit::RedisServer;

/// Measures the cost of Lua scripts on the server, in microseconds for each call.
#[derive(Parser)]
struct Options {
    /// Call plans, or directories of them.
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/formulations"))]
    plans: Vec<PathBuf>,
    /// The number of calls of each script in all rounds.
    #[arg(long, default_value_t = 40_000)]
    calls: usize,
    /// The number of rounds. On a busy machine the minimum is more reliable than the median.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Only calls the scripts once and stops the server, for tools that count the server's
    /// instructions.
    #[arg(long)]
    count: bool,
}

/// The number of calls in a batch. It keeps the server busy, and keeps the buffers of both sides
/// small.
const BATCH: usize = 200;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    let mut plans = Vec::new();
    for path in files(&options.plans)? {
        plans.push(Plan::read(&path).with_context(|| format!("in {}", path.display()))?);
    }
    ensure!(!plans.is_empty(), "no call plans: files that end in .plan");
    ensure!(options.rounds > 0, "at least one round");

    let server = RedisServer::start();
    if options.count {
        for plan in &plans {
            let script = Script::new(&plan.script);
            let mut caller = Caller::of(plan, &server).await?;
            let connection = &mut caller.connection;
            prepare(plan, connection).await?;
            call(plan, &script, options.calls, connection).await?;
        }
        return shut_down(&server).await;
    }
    let calls = options
        .calls
        .div_ceil(options.rounds)
        .next_multiple_of(BATCH);
    let mut costs = vec![Vec::new(); plans.len()];
    // The first round is a warm-up and does not count.
    for round in 0..=options.rounds {
        for (plan, costs) in plans.iter().zip(&mut costs) {
            let cost = measure(plan, calls, &server)
                .await
                .with_context(|| format!("with {}", plan.name))?;
            if round > 0 {
                costs.push(cost);
            }
        }
    }

    let width = plans.iter().map(|plan| plan.name.len()).max().unwrap_or(0);
    println!(
        "{:width$}  {:>7} {:>7} {:>7}",
        "µs a call", "median", "least", "most"
    );
    for (plan, mut costs) in plans.iter().zip(costs) {
        costs.sort_unstable_by(f64::total_cmp);
        println!(
            "{:width$}  {:>7.2} {:>7.2} {:>7.2}",
            plan.name,
            costs[costs.len() / 2],
            costs[0],
            costs[costs.len() - 1],
        );
    }
    Ok(())
}

/// Returns the plans in `paths`, with directories sorted by name.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let entries = fs::read_dir(path).with_context(|| path.display().to_string())?;
            let mut inside = Vec::new();
            for entry in entries {
                inside.push(entry?.path());
            }
            inside.retain(|path| path.extension().is_some_and(|ending| ending == "plan"));
            inside.sort();
            files.extend(inside);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// Runs a plan, and returns the microseconds for each call of its script.
async fn measure(plan: &Plan, calls: usize, server: &RedisServer) -> Result<f64> {
    let script = Script::new(&plan.script);
    let mut caller = Caller::of(plan, server).await?;
    let connection = &mut caller.connection;
    prepare(plan, connection).await?;
    call(plan, &script, BATCH, connection).await?;
    let () = redis::cmd("CONFIG")
        .arg("RESETSTAT")
        .query_async(connection)
        .await?;
    call(plan, &script, calls, connection).await?;
    let statistics: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(connection)
        .await?;
    let (counted, micros) = evalsha(&statistics).context("no statistics of EVALSHA")?;
    ensure!(
        counted == calls,
        "{counted} calls were counted instead of {calls}"
    );
    #[expect(clippy::cast_precision_loss, reason = "microseconds of seconds")]
    Ok(micros as f64 / counted as f64)
}

/// Removes the data of the previous plan, which must not affect this one, and sets its first state.
async fn prepare(plan: &Plan, connection: &mut MultiplexedConnection) -> Result<()> {
    let () = redis::cmd("FLUSHALL").query_async(connection).await?;
    for (times, command) in &plan.fill {
        for from in (0..*times).step_by(BATCH) {
            let mut pipeline = Pipeline::new();
            for number in from..(from + BATCH).min(*times) {
                let filled = pipeline.cmd(&command[0]);
                filled.arg(Plan::fill(&command[1..], number)).ignore();
            }
            let () = pipeline.query_async(connection).await?;
        }
    }
    Ok(())
}

/// Sends the commands of a plan, each followed by its script.
async fn call(
    plan: &Plan,
    script: &Script,
    calls: usize,
    connection: &mut MultiplexedConnection,
) -> Result<()> {
    script.load_async(connection).await?;
    for from in (0..calls).step_by(BATCH) {
        let numbers = from..calls.min(from + BATCH);
        batch(plan, script, numbers, connection).await?;
    }
    Ok(())
}

/// Sends one batch, and checks the replies of the script.
async fn batch(
    plan: &Plan,
    script: &Script,
    numbers: Range<usize>,
    connection: &mut MultiplexedConnection,
) -> Result<()> {
    let mut pipeline = Pipeline::new();
    for number in numbers {
        for command in &plan.before {
            pipeline
                .cmd(&command[0])
                .arg(Plan::fill(&command[1..], number))
                .ignore();
        }
        pipeline
            .cmd("EVALSHA")
            .arg(script.get_hash())
            .arg(plan.keys.len())
            .arg(Plan::fill(&plan.keys, number))
            .arg(Plan::fill(&plan.arguments, number));
    }
    let answers = pipeline.query_async(connection).await;
    let answers: Vec<Value> = answers.map_err(|error: RedisError| {
        // The errors of a batch are all alike.
        let whole = error.to_string();
        anyhow!("{}", whole.split("), (").next().unwrap_or(&whole))
    })?;
    if let Some(expected) = &plan.answer {
        for answer in answers {
            ensure!(
                expected.is(&answer),
                "the script answers {answer:?} and not {expected:?}: is the state as it should be?"
            );
        }
    }
    Ok(())
}

/// Stops the server, so that a tool around it can write its counts, and waits for it.
async fn shut_down(server: &RedisServer) -> Result<()> {
    let mut connection = server.connection().await;
    let mut shutdown = redis::cmd("SHUTDOWN");
    // The server closes the connection instead of a reply.
    let _: RedisResult<Value> = shutdown.arg("NOSAVE").query_async(&mut connection).await;
    let status = format!("/proc/{}/status", server.pid());
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(&status).is_ok_and(|status| !status.contains("\nState:\tZ")) {
        ensure!(Instant::now() < deadline, "the server does not stop");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Returns the calls and the microseconds of EVALSHA in `INFO commandstats`.
fn evalsha(statistics: &str) -> Option<(usize, u64)> {
    let line = statistics
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:"))?;
    let fact = |name: &str| line.split(',').find_map(|fact| fact.strip_prefix(name));
    Some((fact("calls=")?.parse().ok()?, fact("usec=")?.parse().ok()?))
}
