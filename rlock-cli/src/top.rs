//! `rlock top`: the locks that are held, again and again.

#[cfg(feature = "top")]
mod live;
mod looks;
#[cfg(feature = "top")]
mod view;

use std::{
    io::{self, IsTerminal as _},
    time::{Duration, SystemTime},
};

use clap::Args;
use rlock_core::{LockClient, LockInfo};
use serde_json::{Value, json};
use tokio::time::sleep;

use self::looks::{Looks, Order};
use crate::{
    cli::StoreOptions,
    connect::connect,
    describe, duration,
    exit::{Failure, Status},
    ls::listed,
    manual, output,
    text::{escaped, json, time},
};

/// The options of `rlock top`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::TOP))]
pub(crate) struct TopOptions {
    /// Which keys to show: `*` stands for any text, `?` for one character, `\` takes the next one literally
    #[arg(value_name = "GLOB", default_value = "*", hide_default_value = true)]
    glob: String,
    /// Also finds locks whose holders do not answer, by a scan of all keys on the store
    #[arg(long)]
    scan: bool,
    /// How often to look
    #[arg(
        short,
        long,
        value_name = "INTERVAL",
        default_value = "1s",
        value_parser = duration::interval
    )]
    interval: Duration,
    #[command(flatten)]
    store: StoreOptions,
}

pub(crate) async fn top(options: &TopOptions, json: bool) -> Result<Status, Failure> {
    let client = connect(&options.store).await?;
    // The first look fails here, before the screen is taken.
    let first = look(&client, options).await?;
    let mut looks = Looks::default();
    looks.add(first);
    #[cfg(feature = "top")]
    if !json && io::stdin().is_terminal() && io::stdout().is_terminal() {
        return live::run(options, &client, looks).await;
    }
    #[cfg(not(feature = "top"))]
    if !json && io::stdin().is_terminal() && io::stdout().is_terminal() {
        tracing::info!("built without the feature `top`, so there is no table");
    }
    lines(options, json, &client, looks).await
}

async fn look(client: &LockClient, options: &TopOptions) -> Result<Vec<LockInfo>, Failure> {
    listed(client, &options.glob, options.scan).await
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
                Ok(locks) => break looks.add(locks),
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
    let mut line = format!(
        "{} {} held, {} waiters, +{:.1}/s, -{:.1}/s",
        now(),
        looks.locks().len(),
        looks.waiters(),
        rates.appeared,
        rates.gone
    );
    let shown = |info: &LockInfo| format!("{} of {}", escaped(&info.key), describe::holder(info));
    if let Some(info) = looks
        .first(Order::Waiters)
        .filter(|info| describe::waiters(info) > 0)
    {
        line += &format!(
            ", most waiters: {} for {}",
            describe::waiters_text(info),
            shown(info)
        );
    }
    if let Some(info) = looks.first(Order::Age) {
        let held_for = info.holder.as_ref().map(|holder| holder.held_for);
        line += &format!(
            ", oldest: {}",
            held_for.map_or_else(|| "-".to_owned(), time)
        );
        line += &format!(" for {}", shown(info));
    }
    line
}

fn object(looks: &Looks) -> Value {
    let rates = looks.rates();
    json!({
        "time": now(),
        "held": looks.locks().len(),
        "waiters": looks.waiters(),
        "appeared_per_s": rates.appeared,
        "gone_per_s": rates.gone,
        "most_waiters": looks.first(Order::Waiters).map(describe::object),
        "oldest": looks.first(Order::Age).map(describe::object),
    })
}
