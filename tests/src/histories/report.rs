//! The outcome of a run, as text and as JSON.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::Serialize;

use super::{
    check::{self, Findings, Property, Violation},
    history::History,
    record::{AccessKind, FaultKind, Outcome, Run, Verb},
};

/// The number of violations of a property to print in full.
const LISTED: usize = 10;
/// A run that is longer, in seconds, should have a late write of a former holder.
const LONG_ENOUGH: u64 = 30;

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    run: Option<Run>,
    /// Calls by kind and outcome.
    operations: BTreeMap<String, BTreeMap<String, u64>>,
    calls: u64,
    /// The number of entries into locks.
    grants: u64,
    grants_by_mode: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
    /// The number of requests and replies that the proxies lost one by one.
    messages_lost: u64,
    /// By property: the violations to print, and the number of others.
    violations: BTreeMap<Property, u64>,
    told: Vec<Violation>,
    /// By property: the excused cases, and those to print.
    excused: BTreeMap<Property, u64>,
    told_excused: Vec<Violation>,
    findings: Counts,
    fenced: Writes,
    /// The counts of the register with a fence.
    reads: Reads,
    unfenced: Writes,
    counts: bool,
    /// The file of the history, if it is kept.
    history: Option<PathBuf>,
}

/// The number of comparisons and of excused violations.
#[derive(Clone, Debug, Serialize)]
struct Counts {
    intervals_compared: u64,
    data_losses: u64,
    overlaps_by_nature: u64,
    longest_by_nature_ms: u64,
    others_by_nature: u64,
}

/// The writes to a register.
#[derive(Clone, Debug, Serialize)]
struct Writes {
    accepted: u64,
    refused: u64,
    /// Accepted after a later holder's write.
    violations: u64,
}

/// The reads by holders that do not write.
#[derive(Clone, Debug, Serialize)]
struct Reads {
    accepted: u64,
    refused: u64,
    /// Reads whose data changed during a hold.
    torn: u64,
}

impl Report {
    pub(super) fn on(history: &History) -> Self {
        let Findings {
            beliefs,
            overlaps_by_nature,
            longest_by_nature_ms,
            others_by_nature,
            excused,
            violations,
        } = check::check(history);
        let none = Property::ALL.map(|property| (property, 0)).into();
        let (violations, told) = counted_and_told(none, violations);
        let (excused, told_excused) = counted_and_told(BTreeMap::new(), excused);
        let faults = history.faults_by_kind();
        let accesses = || history.locks.values().flat_map(|lock| &lock.accesses);
        let count = |kind: AccessKind, which: &dyn Fn(bool, bool) -> bool| {
            accesses()
                .filter(|access| access.kind == kind && which(access.accepted, access.late))
                .count() as u64
        };
        let grants_by_mode = history.grants_by_mode().into_iter();
        let mut operations: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for ((verb, outcome), count) in &history.operations {
            let by_outcome = operations.entry(verb.to_string()).or_default();
            by_outcome.insert(outcome.to_string(), *count);
        }
        let run = history.run.clone();
        let grants = history.grants();
        let late = count(AccessKind::Write, &|_, late| late);
        let counts = run
            .as_ref()
            .is_some_and(|run| grants >= run.floor && (late > 0 || run.seconds < LONG_ENOUGH));
        Self {
            run,
            operations,
            calls: calls(history),
            grants,
            grants_by_mode: grants_by_mode
                .map(|(mode, count)| (mode.to_string(), count))
                .collect(),
            findings: Counts {
                intervals_compared: beliefs,
                data_losses: faults
                    .iter()
                    .filter(|(kind, _)| kind.loses_data())
                    .map(|(_, count)| count)
                    .sum(),
                overlaps_by_nature,
                longest_by_nature_ms,
                others_by_nature,
            },
            faults: counted_by_kind(faults),
            messages_lost: history
                .faults
                .iter()
                .filter_map(|fault| fault.messages)
                .sum(),
            fenced: Writes {
                accepted: count(AccessKind::Write, &|accepted, _| accepted),
                refused: count(AccessKind::Write, &|accepted, _| !accepted),
                violations: violations[&Property::NoStaleWrite],
            },
            reads: Reads {
                accepted: count(AccessKind::Read, &|accepted, _| accepted),
                refused: count(AccessKind::Read, &|accepted, _| !accepted),
                torn: violations[&Property::NoTornRead],
            },
            unfenced: Writes {
                accepted: count(AccessKind::Write, &|_, _| true),
                refused: 0,
                violations: late,
            },
            violations,
            told,
            excused,
            told_excused,
            counts,
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
        self.violations.values().any(|count| *count > 0)
    }

    /// Returns whether a property does not hold, or a case was excused.
    pub(super) fn has_cases(&self) -> bool {
        self.violated() || !self.excused.is_empty()
    }

    /// Returns whether the run was large enough.
    pub(super) fn counts(&self) -> bool {
        self.counts
    }

    pub(super) fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a report is plain data");
        text.push('\n');
        text
    }
}

/// Counts cases by property, from these counts on, and returns those to print.
fn counted_and_told(
    mut counts: BTreeMap<Property, u64>,
    all: Vec<Violation>,
) -> (BTreeMap<Property, u64>, Vec<Violation>) {
    let mut told = Vec::new();
    for case in all {
        let count = counts.entry(case.property).or_default();
        *count += 1;
        if *count <= LISTED as u64 {
            told.push(case);
        }
    }
    (counts, told)
}

/// Counts the calls. A body has a record at its start and at its end. A body that was killed does
/// not count.
fn calls(history: &History) -> u64 {
    let begins =
        |verb, outcome| matches!(verb, Verb::Run | Verb::RunBoth) && outcome == Outcome::Granted;
    let operations = history.operations.iter();
    operations
        .filter(|((verb, outcome), _)| !begins(*verb, *outcome))
        .map(|(_, count)| count)
        .sum()
}

fn counted_by_kind(faults: BTreeMap<FaultKind, u64>) -> BTreeMap<String, u64> {
    faults
        .into_iter()
        .map(|(kind, count)| (kind.to_string(), count))
        .collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(run) = &self.run {
            let server = run.server.as_deref().unwrap_or("embedded");
            writeln!(
                f,
                "store {} ({server}), seed {}, {} s",
                run.store, run.seed, run.seconds
            )?;
        }
        let grants = list(&self.grants_by_mode);
        writeln!(f, "{} calls, {} grants: {grants}", self.calls, self.grants)?;
        for (verb, outcomes) in &self.operations {
            writeln!(f, "  {verb:<12} {}", list(outcomes))?;
        }
        let faults: u64 = self.faults.values().sum();
        writeln!(
            f,
            "{faults} faults, {} messages lost one by one",
            self.messages_lost
        )?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {kind:<24} {count}")?;
        }
        let Counts {
            intervals_compared,
            data_losses,
            overlaps_by_nature,
            longest_by_nature_ms,
            others_by_nature,
        } = &self.findings;
        writeln!(f, "{intervals_compared} intervals of reliance compared")?;
        writeln!(
            f,
            "by nature, after {data_losses} losses of data: {overlaps_by_nature} overlaps, the longest \
             {longest_by_nature_ms} ms; {others_by_nature} others"
        )?;
        for (name, writes) in [("fenced", &self.fenced), ("unfenced", &self.unfenced)] {
            writeln!(
                f,
                "{name} register: {} writes accepted, {} refused, {} violations",
                writes.accepted, writes.refused, writes.violations
            )?;
        }
        let Reads {
            accepted,
            refused,
            torn,
        } = self.reads;
        writeln!(
            f,
            "reads: {accepted} accepted, {refused} refused, {torn} torn"
        )?;
        for (property, count) in &self.violations {
            writeln!(f, "{property:?}: {count} violations")?;
        }
        for Violation { property, what } in &self.told {
            writeln!(f, "  {property:?}: {what}")?;
        }
        if !self.counts {
            let floor = self.run.as_ref().map_or(0, |run| run.floor);
            writeln!(
                f,
                "this run does not count: it takes {floor} grants, and late writes if it lasts {LONG_ENOUGH} s"
            )?;
        }
        if let Some(path) = &self.history {
            writeln!(f, "history: {}", path.display())?;
            for (property, count) in &self.excused {
                writeln!(f, "excused: {property:?} {count} times")?;
            }
            for Violation { property, what } in &self.told_excused {
                writeln!(f, "  {property:?}: {what}")?;
            }
        }
        Ok(())
    }
}

fn list(outcomes: &BTreeMap<String, u64>) -> String {
    let counts: Vec<String> = outcomes
        .iter()
        .map(|(outcome, count)| format!("{outcome} {count}"))
        .collect();
    counts.join(", ")
}
