//! `rlock ls`: the locks that are held.

use std::{collections::HashSet, time::Duration};

use clap::Args;
use humantime::parse_rfc3339;
use rlock_core::{LockClient, inspect::LockInfo};
use tokio::time::sleep;

use crate::{
    connect::{StoreOptions, connect},
    describe, duration,
    exit::{Failure, Status},
    manual, output,
    table::{self, Column},
    terminal::Screen,
    text::escaped,
};

/// The options of `rlock ls`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::LS))]
pub(crate) struct LsOptions {
    /// Which keys to list: `*` stands for any text, `?` for one character, `\` takes the next one literally
    #[arg(value_name = "GLOB", default_value = "*", hide_default_value = true)]
    glob: String,
    /// Scans all keys on the store, not only the first 10,000, for locks without a holder or whose holder does not reply
    #[arg(long)]
    scan: bool,
    /// Lists again after each interval, until interrupted
    #[arg(
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        default_missing_value = "2s",
        value_parser = duration::interval
    )]
    watch: Option<Duration>,
}

/// How many keys are scanned without `--scan`.
const MOST_SCANNED: usize = 10_000;

pub(crate) const COLUMNS: [Column; 5] = [
    Column::text("KEY"),
    Column::text("HOLDER"),
    Column::number("SINCE"),
    Column::number("LEASE LEFT"),
    Column::number("WAITERS"),
];

pub(crate) async fn ls(
    options: &LsOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let client = connect(store).await?;
    let (glob, scan) = (&options.glob, options.scan);
    let most_scanned = if scan { usize::MAX } else { MOST_SCANNED };
    let Listed {
        mut locks,
        missed,
        is_complete,
        ..
    } = listed(&client, glob, most_scanned).await?;
    let Some(interval) = options.watch else {
        output::text(page(&locks, Screen::of_stdout(), json).as_bytes())?;
        warn_of_missed(missed);
        if !is_complete && missed == 0 {
            tracing::warn!(
                "not all keys of the store were scanned; `--scan` also finds locks that min_hold keeps taken"
            );
        }
        return Ok(Status::SUCCESS);
    };
    let mut missed_before = 0;
    loop {
        let screen = Screen::of_stdout();
        let page = match (page(&locks, screen, json), screen) {
            (page, _) if json => page,
            (page, Some(screen)) => screen.redrawn(&page),
            // Each list ends with an empty line.
            (page, None) => page + "\n",
        };
        if !output::is_read(page.as_bytes())? {
            return Ok(Status::SUCCESS);
        }
        locks = loop {
            sleep(interval).await;
            match listed(&client, glob, most_scanned).await {
                Ok(listed) => {
                    if listed.missed > missed_before {
                        warn_of_missed(listed.missed);
                    }
                    missed_before = listed.missed;
                    break listed.locks;
                }
                // An outage ends some time.
                Err(failure) => _ = failure.report(),
            }
        };
    }
}

/// What a list has found.
pub(crate) struct Listed {
    /// In the order of their keys.
    pub(crate) locks: Vec<LockInfo>,
    /// How many clients or locks did not reply.
    pub(crate) missed: usize,
    /// Whether all keys of the store were scanned.
    is_complete: bool,
    /// How many locks the clients that replied have lost since they started.
    pub(crate) lost: u64,
}

/// Lists the locks, and scans at most this many keys of the store.
pub(crate) async fn listed(
    client: &LockClient,
    glob: &str,
    most_scanned: usize,
) -> Result<Listed, Failure> {
    let list = client.list(glob);
    let mut list = match most_scanned {
        usize::MAX => list.scan(true),
        keys => list.scan_at_most(keys),
    };
    let mut locks = Vec::new();
    while let Some(info) = list.try_next().await? {
        locks.push(info);
    }
    locks.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    // A scan finds the locks of silent clients.
    let is_complete = list.is_complete();
    let missed = if is_complete { 0 } else { list.missed() };
    Ok(Listed {
        locks,
        missed,
        is_complete,
        lost: list.lost_locks(),
    })
}

/// Logs that a list may be incomplete.
pub(crate) fn warn_of_missed(missed: usize) {
    if missed > 0 {
        let clients = if missed == 1 {
            "client does"
        } else {
            "clients do"
        };
        tracing::warn!("{missed} {clients} not reply; `--scan` finds their locks");
    }
}

fn page(locks: &[LockInfo], screen: Option<Screen>, json: bool) -> String {
    let lines: Vec<String> = if json {
        let object = |info| crate::text::json(&describe::object(info));
        locks.iter().map(object).collect()
    } else if locks.is_empty() {
        Vec::new()
    } else {
        let mut jobs = HashSet::new();
        // In the order of keys, the last tick of a job comes last.
        let shown = locks.iter().rev().filter(|info| match job_of(&info.key) {
            Some(job) => jobs.insert(job) || !describe::is_kept(info),
            None => true,
        });
        let mut rows: Vec<_> = shown.map(row).collect();
        rows.reverse();
        table::lines(&COLUMNS, &rows, screen.map(|screen| screen.columns))
    };
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

/// Returns the name of the job whose tick has this key, as in `report:2026-11-27T02:00:00Z`.
fn job_of(key: &str) -> Option<&str> {
    let (job, tick) = key.split_at_checked(key.len().checked_sub("2026-11-27T02:00:00Z".len())?)?;
    parse_rfc3339(tick).ok()?;
    job.strip_suffix(':')
}

pub(crate) fn row(info: &LockInfo) -> [String; 5] {
    [
        escaped(&info.key).into_owned(),
        describe::holder(info),
        describe::held_for(info),
        describe::lease_left(info),
        describe::waiters_text(info),
    ]
}
