//! Compiles and runs functions of many shapes twice, without and with the attribute. Compares diagnostics of rustc
//! and clippy in each edition, return values, drop order, and the auto traits of futures.
//!
//! `shapes/accepted` has the shapes, and `shapes/rejected` those that never compile. A comment `//@ key = "k"` marks the place of the attribute. A difference is an error unless
//! `shapes/known.toml` lists it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::corpus::Source;
use crate::findings::{Finding, Findings};
use crate::known::Known;
use crate::project::{Kind, Project};

#[path = "shapes/corpus.rs"]
mod corpus;
#[path = "shapes/diagnostics.rs"]
mod diagnostics;
#[path = "shapes/findings.rs"]
mod findings;
#[path = "shapes/known.rs"]
mod known;
#[path = "shapes/project.rs"]
mod project;

const EDITIONS: [&str; 4] = ["2015", "2018", "2021", "2024"];

/// The least number of shapes, so that none is lost.
const SHAPES: usize = 600;

#[test]
#[ignore = "scripts/test-all"]
fn functions_are_the_same_with_the_attribute_but_for_known_differences() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("shapes");
    let crates = crates(&here);
    let shapes = crates.values().flatten().map(Source::shapes).sum::<usize>();
    assert!(shapes > SHAPES, "only {shapes} shapes were found");
    let support = std::fs::read_to_string(here.join("support.rs")).expect("there is support.rs");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shapes");
    let project = Project::new(&folder, crates, &support);
    let findings = findings::find(&project).unwrap_or_else(|error| panic!("{error}"));
    let known = Known::read(&here.join("known.toml")).expect("known.toml can be read");
    let report = report(&findings, &known);
    assert!(report.is_empty(), "of {shapes} shapes:\n{report}");
}

/// Returns the shapes of each edition.
fn crates(here: &Path) -> BTreeMap<Kind, Vec<Source>> {
    let mut crates = BTreeMap::new();
    for edition in EDITIONS {
        for rejected in [false, true] {
            let folder = if rejected { "rejected" } else { "accepted" };
            let mut sources = Source::read(&here.join(folder)).expect("the shapes can be read");
            sources.retain(|source| source.is_for(edition));
            let kind = Kind { edition, rejected };
            crates.insert(kind, sources);
        }
    }
    crates
}

/// Lists unknown differences by kind, and known differences that do not occur.
fn report(findings: &Findings, known: &[Known]) -> String {
    let mut groups: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (finding, editions) in findings {
        if !known.iter().any(|known| known.covers(finding)) {
            let editions: Vec<&str> = editions.iter().copied().collect();
            let line = format!("  [{}] {finding}\n", editions.join(", "));
            groups.entry(finding.kind()).or_default().push(line);
        }
    }
    let mut report = String::new();
    for (kind, lines) in groups {
        let _ = writeln!(report, "{kind}, {} times:\n{}", lines.len(), lines.concat());
    }
    let all: Vec<&Finding> = findings.keys().collect();
    for gone in known.iter().flat_map(|known| known.gone(&all)) {
        let _ = writeln!(report, "known.toml lists what does not occur: {gone}");
    }
    report
}

#[test]
fn known_differences_are_documented() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = here.join("../../rlock-macros/docs/attribute.md");
    let docs = std::fs::read_to_string(docs).expect("the documentation is there");
    let docs = words(&docs);
    for known in Known::read(&here.join("shapes/known.toml")).expect("known.toml can be read") {
        assert!(!known.reason.is_empty(), "{} has no reason", known.code);
        let said = docs.contains(&words(&known.documented)) && !known.documented.is_empty();
        assert!(
            said,
            "attribute.md does not say of {}: {}",
            known.code, known.documented
        );
    }
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
