//! The differences between the crates without and with the attribute.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;

use super::corpus::Source;
use super::diagnostics::Diagnostic;
use super::project::{Outcome, Project};

/// The kind of a difference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    /// A diagnostic appears.
    Appears,
    /// A diagnostic disappears.
    Disappears,
    /// A diagnostic has another text.
    Reworded,
    /// A return value differs, or an auto trait.
    Value,
}

/// A difference, in any editions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    pub(crate) file: String,
    pub(crate) line: usize,
    /// The function with the attribute.
    pub(crate) shape: String,
    pub(crate) change: Change,
    /// The lint or the number of the error.
    pub(crate) code: String,
    pub(crate) is_error: bool,
    pub(crate) message: String,
    /// The source line.
    pub(crate) text: String,
}

impl Finding {
    /// Returns the heading to list the finding under.
    pub(crate) fn kind(&self) -> String {
        let level = if self.is_error { "error" } else { "warning" };
        let change = format!("{:?}", self.change).to_lowercase();
        match (self.change, self.code.rsplit_once(" is ")) {
            (Change::Value, Some((_, auto_trait))) => format!("{auto_trait} or not"),
            (Change::Value, None) => "another value".to_owned(),
            _ => format!("{level} {} {change}", self.code),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, message, .. } = self;
        match self.change {
            Change::Value => write!(f, "{file}: {}: {message}", self.code),
            Change::Appears | Change::Disappears | Change::Reworded => {
                let Self {
                    line, shape, text, ..
                } = self;
                write!(f, "{file}:{line} {shape}: {message}: `{text}`")
            }
        }
    }
}

/// All findings, each with its editions.
pub(crate) type Findings = BTreeMap<Finding, BTreeSet<&'static str>>;

/// Compiles and runs a project, and compares the results.
pub(crate) fn find(project: &Project) -> Result<Findings, String> {
    let mut findings = Findings::new();
    let written = project.write();
    written.map_err(|error| format!("the shapes cannot be written: {error}"))?;
    let outcomes = project.compile()?;
    for (kind, sources) in &project.crates {
        let nothing = Outcome::default();
        let plain = outcomes.get(&(*kind, false)).unwrap_or(&nothing);
        let locked = outcomes.get(&(*kind, true)).unwrap_or(&nothing);
        if !kind.rejected && plain.1.is_none() {
            return Err(format!(
                "shapes fail without the attribute:\n{}",
                errors(plain)
            ));
        }
        let mut found = compare(sources, &plain.0, &locked.0);
        match (kind.rejected, &plain.1, &locked.1) {
            (false, Some(plain), Some(locked)) => found.extend(run_both(plain, locked)?),
            // Without a program, diagnostics of other shapes may be missing.
            (false, ..) => found.retain(|finding| finding.is_error),
            (true, ..) => {}
        }
        if !kind.rejected && locked.1.is_none() && found.is_empty() {
            return Err(format!(
                "{kind:?} does not compile with the attribute, and says nothing new"
            ));
        }
        for finding in found {
            findings.entry(finding).or_default().insert(kind.edition);
        }
    }
    Ok(findings)
}

fn errors(outcome: &Outcome) -> String {
    let errors = outcome.0.iter().filter(|said| said.is_error);
    let lines = errors.map(|said| {
        format!(
            "{}:{} {} {}\n",
            said.file, said.line, said.code, said.message
        )
    });
    lines.collect()
}

/// Returns the diagnostics of only one of two crates.
fn compare(sources: &[Source], plain: &[Diagnostic], locked: &[Diagnostic]) -> Vec<Finding> {
    let mut gone = plain.to_vec();
    let mut new = Vec::new();
    for said in locked {
        match gone.iter().position(|other| other == said) {
            Some(same) => drop(gone.swap_remove(same)),
            None => new.push(said.clone()),
        }
    }
    let finding = |said: &Diagnostic, change| {
        let source = sources.iter().find(|source| source.name == said.file);
        let place = source.and_then(|source| source.place(said.line));
        Finding {
            file: said.file.clone(),
            line: said.line,
            shape: match (source, place) {
                (Some(source), Some(line)) => source.shape(line),
                _ => String::new(),
            },
            change,
            code: said.code.clone(),
            is_error: said.is_error,
            message: said.message.clone(),
            text: source.map_or_else(String::new, |source| source.line(said.line).to_owned()),
        }
    };
    let mut findings = Vec::new();
    for said in new {
        let reworded = gone.iter().position(|other| {
            (&other.file, other.line, &other.code) == (&said.file, said.line, &said.code)
        });
        let change = match reworded {
            Some(other) => {
                gone.swap_remove(other);
                Change::Reworded
            }
            None => Change::Appears,
        };
        findings.push(finding(&said, change));
    }
    findings.extend(gone.iter().map(|said| finding(said, Change::Disappears)));
    findings
}

fn run_both(plain: &Path, locked: &Path) -> Result<Vec<Finding>, String> {
    let plain = values(plain)?;
    let locked = values(locked)?;
    let names: BTreeSet<&String> = plain.keys().chain(locked.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|name| plain.get(*name) != locked.get(*name));
    let finding = |name: &String| {
        let value = |values: &BTreeMap<String, String>| {
            values
                .get(name)
                .map_or("nothing", String::as_str)
                .to_owned()
        };
        let (file, run) = name.split_once(": ").unwrap_or_default();
        Finding {
            file: file.to_owned(),
            line: 0,
            shape: run.split(' ').next().unwrap_or_default().to_owned(),
            change: Change::Value,
            code: run.to_owned(),
            is_error: false,
            message: format!(
                "{}, and without the attribute {}",
                value(&locked),
                value(&plain)
            ),
            text: String::new(),
        }
    };
    Ok(differing.map(finding).collect())
}

/// The output of a program: a name and a value on each line.
fn values(program: &Path) -> Result<BTreeMap<String, String>, String> {
    let name = program.display();
    // The status is 124 if the program hangs.
    let run = Command::new("timeout").arg("60s").arg(program).output();
    let run = run.map_err(|error| format!("{name} does not run: {error}"))?;
    let [printed, errors] = [&run.stdout, &run.stderr].map(|text| String::from_utf8_lossy(text));
    if !run.status.success() {
        return Err(format!("{name} failed, {}:\n{printed}{errors}", run.status));
    }
    let values = printed.lines().filter_map(|line| line.split_once('\t'));
    Ok(values
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}
