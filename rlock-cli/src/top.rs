//! `rlock top`: shows the locks that are held, and refreshes them.

#[cfg(feature = "top")]
mod live;
mod looks;
#[cfg(feature = "top")]
mod view;

use std::time::{Duration, SystemTime};

use clap::Args;
use rlock_core::{LockClient, inspect::LockInfo};
use serde_json::{Value, json};
use tokio::time::sleep;

use self::looks::{Looks, Order};
use crate::{
    connect::{StoreOptions, connect},
    describe, duration,
    exit::{Failure, Status},
    ls::Listed,
    ls::listed,
    manual, output,
    text::{escaped, json},
};

/// The options of `rlock top`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::TOP))]
pub(crate) struct TopOptions {
    /// Which keys to show: `*` stands for any text, `?` for one character, `\` takes the next one literally
    #[arg(value_name = "GLOB", default_value = "*", hide_default_value = true)]
    glob: String,
    /// Scans all keys on the store, to find also locks whose holders do not reply
    #[arg(long)]
    scan: bool,
    /// How often to refresh
    #[arg(
        short,
        long,
        value_name = "INTERVAL",
        default_value = "1s",
        value_parser = duration::interval
    )]
    interval: Duration,
}

pub(crate) async fn top(
    options: &TopOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let client = connect(store).await?;
    // The first look fails here, before the screen is taken.
    let first = look(&client, options).await?;
    let mut looks = Looks::default();
    looks.add(first);
    #[cfg(feature = "top")]
    if !json && live::has_screen() {
        return live::run(options, &client, looks).await;
    }
    lines(options, json, &client, looks).await
}

async fn look(client: &LockClient, options: &TopOptions) -> Result<Listed, Failure> {
    let most_scanned = if options.scan { usize::MAX } else { 0 };
    listed(client, &options.glob, most_scanned).await
}

/// Prints each look as a line, until the reader has seen enough.
async fn lines(
    options: &TopOptions,
    json: bool,
    client: &LockClient,
    mut looks: Looks,
) -> Result<Status, Failure> {
    loop {
        let line = if json {
            self::json(&object(&looks))
        } else {
            line(&looks)
        };
        if !output::is_read(format!("{line}\n").as_bytes())? {
            return Ok(Status::SUCCESS);
        }
        loop {
            sleep(options.interval).await;
            match look(client, options).await {
                Ok(found) => break looks.add(found),
                // An outage ends some time.
                Err(failure) => _ = failure.report(),
            }
        }
    }
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

fn line(looks: &Looks) -> String {
    let rates = looks.rates();
    let shown = |info: &LockInfo| format!("{} of {}", escaped(&info.key), describe::holder(info));
    let waited_for = looks.first(Order::Waiters);
    let waited_for = waited_for.filter(|info| describe::waiters(info) > 0);
    let most_waiters = waited_for.map_or_else(String::new, |info| {
        let waiters = describe::waiters_text(info);
        format!(", most waiters: {waiters} for {}", shown(info))
    });
    let oldest = looks.first(Order::Age).map_or_else(String::new, |info| {
        let age = describe::held_for(info);
        format!(", oldest: {age} for {}", shown(info))
    });
    format!(
        "{} {}, +{:.1}/s, -{:.1}/s{most_waiters}{oldest}",
        now(),
        looks.summary(),
        rates.appeared,
        rates.gone
    )
}

fn object(looks: &Looks) -> Value {
    let rates = looks.rates();
    json!({
        "time": now(),
        "held": looks.locks().len(),
        "waiter_count": looks.waiters(),
        "lost": looks.lost(),
        "silent_clients": looks.missed(),
        "appeared_per_s": rates.appeared,
        "gone_per_s": rates.gone,
        "most_waiters": looks.first(Order::Waiters).map(describe::object),
        "oldest": looks.first(Order::Age).map(describe::object),
    })
}
