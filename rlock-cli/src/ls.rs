//! `rlock ls`: the locks that are held.

use std::time::Duration;

use clap::Args;
use rlock_core::{LockClient, LockInfo};
use tokio::time::sleep;

use crate::{
    cli::StoreOptions,
    connect::connect,
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
    /// Also finds locks whose holders do not answer, by a scan of all keys on the store
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
    #[command(flatten)]
    store: StoreOptions,
}

pub(crate) const COLUMNS: [Column; 5] = [
    Column::text("KEY"),
    Column::text("HOLDER"),
    Column::number("SINCE"),
    Column::number("LEASE LEFT"),
    Column::number("WAITERS"),
];

pub(crate) async fn ls(options: &LsOptions, json: bool) -> Result<Status, Failure> {
    let client = connect(&options.store).await?;
    let screen = Screen::of_stdout();
    let mut locks = listed(&client, &options.glob, options.scan).await?;
    let Some(interval) = options.watch else {
        output::text(page(&locks, screen, json).as_bytes())?;
        return Ok(Status::SUCCESS);
    };
    loop {
        let page = page(&locks, screen, json);
        let page = match Screen::of_stdout() {
            Some(screen) if !json => screen.redrawn(&page),
            // Each list ends with an empty line.
            _ if !json => page + "\n",
            _ => page,
        };
        if !output::is_read(page.as_bytes())? {
            return Ok(Status::SUCCESS);
        }
        locks = loop {
            sleep(interval).await;
            match listed(&client, &options.glob, options.scan).await {
                Ok(locks) => break locks,
                // An outage ends some time.
                Err(failure) => _ = failure.report(),
            }
        };
    }
}

/// Returns the locks in the order of their keys.
pub(crate) async fn listed(
    client: &LockClient,
    glob: &str,
    scan: bool,
) -> Result<Vec<LockInfo>, Failure> {
    let mut list = client.list(glob).scan(scan);
    let mut locks = Vec::new();
    while let Some(info) = list.next().await? {
        locks.push(info);
    }
    locks.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    Ok(locks)
}

fn page(locks: &[LockInfo], screen: Option<Screen>, json: bool) -> String {
    let lines: Vec<String> = if json {
        let object = |info| crate::text::json(&describe::object(info));
        locks.iter().map(object).collect()
    } else if locks.is_empty() {
        Vec::new()
    } else {
        let rows: Vec<_> = locks.iter().map(row).collect();
        table::lines(&COLUMNS, &rows, screen.map(|screen| screen.columns))
    };
    lines.iter().flat_map(|line| [line, "\n"]).collect()
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
