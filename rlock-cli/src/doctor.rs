//! `rlock doctor`: whether the servers of a store are fit for locks.

mod checks;
mod clock;
mod connection;
mod findings;
mod grant;
mod info;
mod servers;

use clap::Args;
use rlock_core::__private::probe::Endpoint;

use self::{findings::State, servers::examine};
use crate::{
    connect::StoreOptions,
    connect::embedded,
    exit::{Failure, Status},
    manual, output,
};

/// The options of `rlock doctor`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::DOCTOR))]
pub(crate) struct DoctorOptions {}

pub(crate) async fn doctor(
    _: &DoctorOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let urls = store.urls()?;
    let endpoint = match urls[..] {
        [url] => Endpoint::parse(url)?,
        _ => Endpoint::quorum(&urls)?,
    };
    if matches!(endpoint, Endpoint::Memory(_)) {
        return Err(embedded());
    }
    let reports = examine(endpoint, &urls, &store.prefix).await?;
    for report in &reports {
        let text = if json { report.json() } else { report.text() };
        output::text(text.as_bytes())?;
    }
    let count = |state| {
        let findings = reports.iter().flat_map(|report| &report.findings);
        findings.filter(|finding| finding.state == state).count()
    };
    let problems = count(State::Unsafe);
    if !json {
        let verdict = match (problems, count(State::Advice)) {
            (0, 0) => "locks are safe on this store",
            (0, _) => "no check failed; the lines with ! are advice",
            _ => "locks are NOT safe on this store: the lines with ✗ say what to do",
        };
        output::text(format!("{verdict}\n").as_bytes())?;
    }
    Ok(if problems == 0 {
        Status::SUCCESS
    } else {
        Status::NOT_HELD
    })
}
