//! The outcome of a run as text.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use super::{
    check::{self, Findings, Property, Violation},
    history::History,
    record::{Access, Outcome, Run, Verb},
};

/// The number of violations of a property to print in full.
const LISTED: usize = 10;
/// A run that is longer, in seconds, should have a late write of a former holder.
const LONG_ENOUGH: u64 = 30;

/// The results of a run.
#[derive(Clone, Debug)]
pub(super) struct Report {
    run: Option<Run>,
    calls: u64,
    /// Counts by kind.
    grants: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
    accesses: BTreeMap<String, u64>,
    data_losses: usize,
    /// The number of requests and replies that the proxies lost one by one.
    messages_lost: u64,
    /// The writes after those of a later holder, which a resource without a fence accepts.
    late_writes: usize,
    findings: Findings,
    /// The file of the history, if it is kept.
    history: Option<PathBuf>,
}

impl Report {
    pub(super) fn on(history: &History) -> Self {
        let faults = history.faults.iter();
        // A body has a record at its start and at its end. A body that was killed does not count.
        let begins = |verb, outcome| {
            matches!(verb, Verb::Run | Verb::RunBoth) && outcome == Outcome::Granted
        };
        let calls = history.operations.iter();
        let calls = calls.filter(|((verb, outcome), _)| !begins(*verb, *outcome));
        let locks = || history.locks.values();
        let accesses = locks().flat_map(|lock| &lock.accesses);
        let access_kind = |access: &Access| {
            let verdict = if access.accepted {
                "accepted"
            } else {
                "refused"
            };
            format!("{} {verdict}", access.kind)
        };
        Self {
            run: history.run.clone(),
            calls: calls.map(|(_, count)| count).sum(),
            grants: counts(
                locks()
                    .flat_map(|lock| &lock.holds)
                    .map(|hold| hold.mode.to_string()),
            ),
            accesses: counts(accesses.clone().map(access_kind)),
            data_losses: faults
                .clone()
                .filter(|fault| fault.kind.loses_data())
                .count(),
            messages_lost: faults.clone().filter_map(|fault| fault.messages).sum(),
            faults: counts(faults.map(|fault| fault.kind.to_string())),
            late_writes: accesses.filter(|access| access.late).count(),
            findings: check::check(history),
            history: None,
        }
    }

    /// Names the file of the history.
    pub(super) fn kept_in(self, path: PathBuf) -> Self {
        Self {
            history: Some(path),
            ..self
        }
    }

    /// Returns whether a property does not hold.
    pub(super) fn violated(&self) -> bool {
        !self.findings.violations.is_empty()
    }

    /// Returns whether a property does not hold, or a case was excused.
    pub(super) fn has_cases(&self) -> bool {
        self.violated() || !self.findings.excused.is_empty()
    }

    /// Returns whether the run was large enough.
    pub(super) fn counts(&self) -> bool {
        let grants: u64 = self.grants.values().sum();
        let is_large =
            |run: &Run| grants >= run.floor && (self.late_writes > 0 || run.seconds < LONG_ENOUGH);
        self.run.as_ref().is_some_and(is_large)
    }
}

fn counts(kinds: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for kind in kinds {
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

fn list(counts: &BTreeMap<String, u64>) -> String {
    let counts = counts.iter().map(|(what, count)| format!("{what} {count}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// Writes how many cases of a property there are, and some of them.
fn cases(f: &mut fmt::Formatter<'_>, of: Property, all: &[Violation], what: &str) -> fmt::Result {
    let cases: Vec<&Violation> = all.iter().filter(|case| case.property == of).collect();
    writeln!(f, "{of:?}: {} {what}", cases.len())?;
    for case in cases.iter().take(LISTED) {
        writeln!(f, "  {of:?}: {}", case.what)?;
    }
    Ok(())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(run) = &self.run {
            let (store, server, seed) = (&run.store, &run.server, run.seed);
            writeln!(
                f,
                "store {store} ({server}), seed {seed}, {} s",
                run.seconds
            )?;
        }
        let grants: u64 = self.grants.values().sum();
        let by_mode = list(&self.grants);
        writeln!(f, "{} calls, {grants} grants: {by_mode}", self.calls)?;
        let (faults, lost) = (self.faults.values().sum::<u64>(), self.messages_lost);
        writeln!(f, "{faults} faults, {lost} messages lost one by one")?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {kind:<24} {count}")?;
        }
        let Findings {
            beliefs,
            overlaps_by_nature,
            longest_by_nature_ms,
            others_by_nature,
            excused,
            violations,
        } = &self.findings;
        writeln!(f, "{beliefs} intervals of reliance compared")?;
        writeln!(
            f,
            "by nature, after {} losses of data: {overlaps_by_nature} overlaps, the longest \
             {longest_by_nature_ms} ms; {others_by_nature} others",
            self.data_losses
        )?;
        writeln!(f, "accesses: {}", list(&self.accesses))?;
        writeln!(f, "without a fence: {} late writes", self.late_writes)?;
        for property in Property::ALL {
            cases(f, property, violations, "violations")?;
        }
        if !self.counts() {
            let floor = self.run.as_ref().map_or(0, |run| run.floor);
            writeln!(
                f,
                "this run does not count: it takes {floor} grants, and late writes if it lasts {LONG_ENOUGH} s"
            )?;
        }
        if let Some(path) = &self.history {
            writeln!(f, "history: {}", path.display())?;
            for property in Property::ALL {
                if excused.iter().any(|case| case.property == property) {
                    cases(f, property, excused, "excused")?;
                }
            }
        }
        Ok(())
    }
}
