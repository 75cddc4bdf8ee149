//! `rlock doctor`: whether the servers of a store are fit for locks.

use std::{fmt::Write as _, time::Duration};

use clap::Args;
use rlock_core::diagnose::{self, Finding, Severity};
use serde_json::json;

use crate::{
    connect::{StoreOptions, builder},
    exit::{Failure, Status},
    manual, output,
    text::{self, escaped},
};

/// How long a server may take to accept a connection, and by default to reply. Longer than a service waits by default, so
/// that a slow server is examined, too.
const PATIENCE: Duration = Duration::from_secs(5);

/// The options of `rlock doctor`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::DOCTOR))]
pub(crate) struct DoctorOptions {}

pub(crate) async fn doctor(
    _: &DoctorOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let builder = builder(store)
        .connect_timeout(PATIENCE)
        .response_timeout(store.response_timeout_or(PATIENCE));
    let findings = diagnose::store(store.url()?, &builder).await?;
    let count = |severity| {
        findings
            .iter()
            .filter(|one| one.severity == severity)
            .count()
    };
    let faults = count(Severity::Unsafe);
    if json {
        output::text(lines(&findings).as_bytes())?;
    } else {
        let verdict = match (faults, count(Severity::Advice)) {
            (0, 0) => "locks are safe on this store",
            (0, _) => "no check failed; the lines with ! are advice",
            _ => "locks are NOT safe on this store: the lines with ✗ say what to do",
        };
        output::text(format!("{}{verdict}\n", list(&findings)).as_bytes())?;
    }
    Ok(if faults == 0 {
        Status::SUCCESS
    } else {
        Status::NOT_HELD
    })
}

/// Returns a heading for each server, and a line for each finding.
fn list(findings: &[Finding]) -> String {
    let mut list = String::new();
    for of_server in findings.chunk_by(|one, next| one.server == next.server) {
        let _ = writeln!(list, "{}", escaped(&of_server[0].server));
        for finding in of_server {
            let mark = match finding.severity {
                Severity::Good => '✓',
                Severity::Advice => '!',
                _ => '✗',
            };
            let text = text_of(finding);
            let _ = writeln!(list, "  {mark} {:<11}  {}", finding.check, escaped(&text));
        }
    }
    list
}

/// Returns a line of JSON for each finding.
fn lines(findings: &[Finding]) -> String {
    let mut lines = String::new();
    for finding in findings {
        let severity = match finding.severity {
            Severity::Good => "good",
            Severity::Advice => "advice",
            _ => "unsafe",
        };
        let object = json!({
            "server": finding.server,
            "check": finding.check,
            "severity": severity,
            "text": text_of(finding),
        });
        lines.push_str(&text::json(&object));
        lines.push('\n');
    }
    lines
}

fn text_of(finding: &Finding) -> String {
    match &finding.remedy {
        Some(remedy) => format!("{}; {remedy}", finding.text),
        None => finding.text.clone(),
    }
}
