//! Checks cases: short histories, each with the properties that the checker has to find broken, so that each rule is known to fail.
//!
//! ```text
//! # a hold inside another is found
//! call owner=a:1 token=1 asked=0 at=5 until=100
//! call owner=b:1 token=2 asked=0 at=20 until=120
//! => OneHolder
//! ```
//!
//! `=>` names all properties that the records since the title break, or `nothing`. After `also`, it names only some of them. The
//! excused findings may follow: `overlaps <number> <longest, in milliseconds>` and `others <number>`.

use super::{Findings, Property, check};
use crate::histories::{history::History, text::Reader};

/// The start of a line with an expectation.
const EXPECTED: &str = "=>";

/// Returns whether a text consists of cases, and not of the history of a run.
pub(in crate::histories) fn has_cases(text: &str) -> bool {
    text.lines().any(|line| line.starts_with(EXPECTED))
}

/// Checks all cases of a text. Returns their number, or the titles and findings of those that failed.
pub(in crate::histories) fn check_cases(text: &str) -> Result<usize, String> {
    let (mut title, mut records, mut reader) = ("", Vec::new(), Reader::default());
    let (mut checked, mut wrong) = (0, Vec::new());
    for line in text.lines() {
        if let Some(next) = line.strip_prefix('#') {
            title = next.trim();
            records.clear();
        } else if let Some(expected) = line.strip_prefix(EXPECTED) {
            let mut history = History::default();
            records
                .iter()
                .cloned()
                .for_each(|record| history.add(record));
            let findings = check(&history);
            checked += 1;
            if !agrees(&findings, expected)? {
                wrong.push(format!("{title}: not{expected}, but {findings:#?}"));
            }
        } else {
            records.extend(reader.read(line)?);
        }
    }
    if wrong.is_empty() {
        Ok(checked)
    } else {
        Err(wrong.join("\n"))
    }
}

fn agrees(findings: &Findings, expected: &str) -> Result<bool, String> {
    let violations = findings.violations.iter();
    let mut found: Vec<Property> = violations.map(|violation| violation.property).collect();
    found.dedup();
    let (mut words, mut named) = (expected.split_whitespace(), Vec::new());
    let (mut is_also, mut agree) = (false, true);
    while let Some(word) = words.next() {
        let mut is_number = |number: u64| words.next() == Some(&number.to_string());
        match word {
            "nothing" => {}
            "also" => is_also = true,
            "overlaps" => {
                agree &= is_number(findings.overlaps_by_nature);
                agree &= is_number(findings.longest_by_nature_ms);
            }
            "others" => agree &= is_number(findings.others_by_nature),
            name => {
                let mut all = Property::ALL.into_iter();
                let property = all.find(|property| format!("{property:?}") == name);
                named.push(property.ok_or(format!("there is no property {name}"))?);
            }
        }
    }
    let has_named = named.iter().all(|property| found.contains(property));
    Ok(agree && if is_also { has_named } else { named == found })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn the_checker_finds_what_each_history_of_the_corpus_breaks() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/histories");
        let mut all = String::new();
        for file in fs::read_dir(corpus).expect("the corpus is there") {
            let path = file.expect("a file").path();
            let text = fs::read_to_string(&path).expect("a text");
            match check_cases(&text) {
                Ok(number) => assert!(number > 0, "{} has no cases", path.display()),
                Err(wrong) => panic!("{}: {wrong}", path.display()),
            }
            all += &text;
        }
        for property in Property::ALL {
            let breaks = |line: &str| {
                line.starts_with(EXPECTED) && line.ends_with(&format!(" {property:?}"))
            };
            assert!(all.lines().any(breaks), "no case breaks {property:?}");
        }
    }

    #[test]
    fn a_case_that_fails_is_reported_with_its_title() {
        let case = "# a title\nleftover what=x\n=> nothing";
        let wrong = check_cases(case).expect_err("something is left");
        assert!(wrong.contains("a title: not nothing, but"), "{wrong}");
        assert!(check_cases("=> Nonsense").is_err());
    }
}
