//! Worker processes: this binary, started with the hidden subcommand `worker`. They read commands
//! as lines, and reply with lines of JSON.

use std::{
    env,
    io::{BufRead as _, stdin},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rlock_core::LockClient;
use rlock_testkit::Worker;
use serde::{Deserialize, Serialize};

use crate::{
    clock,
    contention::Tasks,
    contestant::{Kind, LEASE, RETAIN},
    delay,
    grants::{Grants, Span},
    runtime,
    say::say,
};

/// The task of a worker process, which is its argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Runs tasks that contend for one lock. Each line `<start> <stop> <stay>` is one run.
    Contend {
        kind: Kind,
        url: String,
        key: String,
        tasks: u32,
        /// The number of the first task.
        first: u32,
    },
    /// Holds idle locks. Each line requests their cost since the previous line.
    Idle {
        kind: Kind,
        url: String,
        count: usize,
        /// In milliseconds.
        lease: u64,
    },
    /// Acquires, releases and retains a lock at each line.
    Retain { url: String, key: String },
    /// Delays the connections to these addresses. Each line sets the delay.
    Delay { addresses: Vec<String> },
    /// Keeps a core awake at the lowest priority.
    Spin,
}

/// The cost of idle locks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) processor_seconds: f64,
    /// Resident bytes, minus those of the connected process without locks.
    pub(crate) resident: f64,
    /// The number of locks whose loss the client knows.
    pub(crate) lost: usize,
}

/// The limit for a worker's reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a worker, and waits until it is ready.
pub(crate) async fn start(role: &Role) -> Result<Worker> {
    let mut worker = spawn(role)?;
    let ready: bool = answer(&mut worker).await?;
    ensure!(ready, "the worker cannot do this");
    Ok(worker)
}

/// Starts a worker.
pub(crate) fn spawn(role: &Role) -> Result<Worker> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("worker").arg(serde_json::to_string(role)?);
    Ok(Worker::start(&mut command))
}

/// Keeps all cores awake until the result is dropped.
pub(crate) async fn keep_awake() -> Result<Vec<Worker>> {
    let cores = std::thread::available_parallelism()?.get();
    let mut spinning = Vec::with_capacity(cores);
    for _ in 0..cores {
        spinning.push(start(&Role::Spin).await?);
    }
    Ok(spinning)
}

/// Reads the next reply of the worker.
pub(crate) async fn answer<T: for<'a> Deserialize<'a>>(worker: &mut Worker) -> Result<T> {
    let line = worker.line(PATIENCE).await.context("the worker ended")?;
    Ok(serde_json::from_str(&line)?)
}

/// Makes several workers contend during `span`.
pub(crate) async fn contend(workers: &mut [Worker], span: Span, stay: Duration) -> Result<Grants> {
    for worker in workers.iter_mut() {
        worker.send(&format!("{} {} {}", span.start, span.stop, stay.as_nanos()));
    }
    let mut all = Grants::default();
    for worker in workers {
        all.extend(answer(worker).await?);
    }
    Ok(all)
}

/// Queries the cost of a worker's idle locks since the last query.
pub(crate) async fn cost(worker: &mut Worker) -> Result<Cost> {
    worker.send("cost");
    answer(worker).await
}

/// Makes a worker acquire and release its lock, which it then retains.
pub(crate) async fn use_lock(worker: &mut Worker) -> Result<()> {
    worker.send("use");
    let _: bool = answer(worker).await?;
    Ok(())
}

/// Runs a worker process until its input ends.
pub(crate) fn work(role: Role) -> Result<()> {
    match role {
        Role::Contend {
            kind,
            url,
            key,
            tasks,
            first,
        } => {
            let runtime = runtime::two_threads()?;
            let client = runtime.block_on(kind.connect(&url, LEASE))?;
            let keys = (0..tasks).map(|_| key.clone());
            let mut tasks = runtime.block_on(Tasks::new(&*client, first, keys))?;
            say(&true)?;
            for line in stdin().lock().lines() {
                let (span, stay) = read_run(&line?).context("<start> <stop> <stay>")?;
                say(&runtime.block_on(tasks.run(span, stay)))?;
            }
        }
        Role::Idle {
            kind,
            url,
            count,
            lease,
        } => {
            let runtime = runtime::two_threads()?;
            let client = runtime.block_on(kind.connect(&url, Duration::from_millis(lease)))?;
            // The first lock allocates resources that every client needs once.
            let warm = runtime.block_on(client.hold(&["warm".to_owned()]))?;
            let keys: Vec<String> = (0..count).map(|n| format!("idle:{n}")).collect();
            let before = resident()?;
            let held = runtime.block_on(client.hold(&keys))?;
            say(&held.is_some())?;
            let (mut since, mut used) = (clock::now(), clock::processor_time());
            for line in stdin().lock().lines() {
                line?;
                let (now, processor) = (clock::now(), clock::processor_time());
                say(&Cost {
                    seconds: seconds(now - since),
                    processor_seconds: seconds(processor - used),
                    resident: resident()? - before,
                    lost: held.as_ref().map_or(0, |held| held.lost()),
                })?;
                (since, used) = (now, processor);
            }
            drop((held, warm));
        }
        Role::Retain { url, key } => {
            let runtime = runtime::two_threads()?;
            let builder = LockClient::builder()
                .default_lease(LEASE)
                .default_retain(RETAIN);
            let client = runtime.block_on(builder.connect(&url))?;
            let lock = client.lock(key).wait_forever();
            say(&true)?;
            for line in stdin().lock().lines() {
                line?;
                runtime.block_on(async { lock.acquire().await?.release().await })?;
                say(&true)?;
            }
        }
        Role::Delay { addresses } => delay::serve(&addresses)?,
        Role::Spin => {
            rustix::process::nice(19)?;
            say(&true)?;
            std::thread::spawn(|| {
                loop {
                    std::hint::spin_loop();
                }
            });
            stdin().lines().for_each(drop);
        }
    }
    Ok(())
}

fn read_run(line: &str) -> Option<(Span, Duration)> {
    let mut numbers = line.split(' ').map(str::parse);
    let mut next = || numbers.next()?.ok();
    let (start, stop) = (next()?, next()?);
    Some((Span { start, stop }, Duration::from_nanos(next()?)))
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a few seconds")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Returns the resident bytes of this process.
#[expect(clippy::cast_precision_loss, reason = "kilobytes of a small process")]
fn resident() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    let kilobytes: u64 = kilobytes
        .context("no VmRSS in /proc/self/status")?
        .parse()?;
    Ok(kilobytes as f64 * 1024.0)
}
