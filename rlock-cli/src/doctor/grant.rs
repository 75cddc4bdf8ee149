//! Checks whether a store grants locks: `doctor` acquires one of its own, as a service does.

use std::time::{Duration, Instant};

use rlock_core::{LockClient, LockError};

use super::findings::{Finding, Report};
use crate::connect::builder;

/// How long the client may take to connect, which includes the search for a master.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an operator can do about a refusal that contains this word. The library's errors advise on all others.
const WAYS_OUT: [(&str, &str); 2] = [
    (
        "BUSY",
        "a script is running on it: wait until it ends, or call `SCRIPT KILL`",
    ),
    ("NOPERM", "this user lacks permissions: grant those above"),
];

/// Adds the finding to the report of the server, or of the cluster, that grants locks, if a server is reachable.
pub(super) async fn check(reports: &mut [Report], url: &str, prefix: &str) {
    if !reports.iter().any(|report| report.is_reachable) {
        return;
    }
    if let Some(report) = reports.iter_mut().find(|report| report.grants_locks) {
        report.findings.push(granted(url, prefix).await);
    }
}

async fn granted(url: &str, prefix: &str) -> Finding {
    const CHECK: &str = "grant";
    let began = Instant::now();
    let probed = async {
        let client: LockClient = builder(prefix)
            .connect_timeout(PATIENCE)
            .connect(url)
            .await?;
        let probed = client.probe().await;
        // The probe's outcome is the finding, even if the shutdown fails.
        let _ = client.shutdown().await;
        probed
    };
    match probed.await {
        Ok(()) => {
            let took = began.elapsed().as_millis();
            Finding::good(
                CHECK,
                format!("acquired and released a lock within {took} ms"),
            )
        }
        Err(error) => Finding::harm(CHECK, format!("no lock is granted: {}", explained(&error))),
    }
}

fn explained(error: &LockError) -> String {
    let said = match error {
        LockError::Unavailable { source, .. } | LockError::Refused { source, .. } => {
            source.to_string()
        }
        other => format!("{other:#}"),
    };
    let upper = said.to_uppercase();
    let way_out = WAYS_OUT.iter().find(|(word, _)| upper.contains(word));
    match way_out {
        Some((_, way_out)) => format!("{said}; {way_out}"),
        None => said,
    }
}
