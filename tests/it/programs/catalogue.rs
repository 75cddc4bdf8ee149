//! Compares `docs/failures.md` with the tests and the sources.
//!
//! `catalogue.toml` names the tests of each failure on the page. The page lists every message at
//! level INFO or above.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The number of failures on the page.
const ENTRIES: u32 = 30;

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the workspace").to_owned()
}

fn page() -> String {
    fs::read_to_string(root().join("docs/failures.md")).expect("the page is there")
}

/// Returns all Rust sources below a directory, by file name. Tests of a binary with several files
/// are named by directory.
fn sources(directory: &Path) -> Vec<(String, String)> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            let name = path.file_name().expect("a name").to_string_lossy();
            for (stem, text) in self::sources(&path) {
                sources.push((name.clone().into_owned(), text.clone()));
                sources.push((stem, text));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let stem = path.file_stem().expect("a name").to_string_lossy();
            let text = fs::read_to_string(&path).expect("a text");
            sources.push((stem.into_owned(), text));
        }
    }
    sources
}

/// Returns the names of test functions that `scripts/test` runs.
fn tests_in(source: &str) -> BTreeSet<String> {
    let (mut tests, mut is_test) = (BTreeSet::new(), false);
    // A suite lists the names of its tests.
    let is_suite = source.contains("macro_rules!");
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_test = false;
        } else if let (true, Some(name)) = (is_suite, line.strip_suffix(',')) {
            tests.insert(name.to_owned());
        } else if let Some((before, name)) = line.split_once("fn ")
            && matches!(before, "" | "async ")
        {
            let name = name.split(['(', '<']).next().unwrap_or_default();
            if std::mem::take(&mut is_test) {
                tests.insert(name.to_owned());
            }
        }
    }
    tests
}

/// Returns every test of the integration tests, the command, the core and the decisions, by file.
fn all_tests() -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for directory in [
        "tests/it",
        "rlock-cli/tests",
        "rlock-core/src",
        "rlock-proto/src",
    ] {
        for (stem, text) in sources(&root().join(directory)) {
            all.entry(stem).or_default().extend(tests_in(&text));
        }
    }
    all
}

/// Returns the test names of each failure, by its number on the page.
fn catalogue() -> BTreeMap<u32, Vec<String>> {
    let file = root().join("tests/catalogue.toml");
    let text = fs::read_to_string(file).expect("the catalogue is there");
    let entries: BTreeMap<String, Vec<String>> =
        toml::from_str(&text).expect("the catalogue is read");
    let entries = entries.into_iter();
    let numbered = entries.map(|(number, tests)| (number.parse().expect("a number"), tests));
    numbered.collect()
}

/// Returns the numbers in the tables of failures, in the order of the page.
fn rows(page: &str) -> Vec<u32> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').collect();
        let number = cells.first()?.trim().parse().ok()?;
        assert_eq!(cells.len(), 3, "{line}");
        Some(number)
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn every_failure_is_on_the_page_with_tests_that_provoke_it() {
    let (rows, catalogue) = (rows(&page()), catalogue());
    let expected: Vec<u32> = (1..=ENTRIES).collect();
    assert_eq!(rows, expected, "each row once, in order");
    let numbers: Vec<u32> = catalogue.keys().copied().collect();
    assert_eq!(numbers, expected, "each row has an entry");
    for (number, tests) in catalogue {
        assert!(!tests.is_empty(), "failure {number} has no test");
    }
}

#[test]
fn every_test_that_the_catalogue_names_exists() {
    let all = all_tests();
    let named: Vec<String> = catalogue().into_values().flatten().collect();
    for test in named {
        let exists = all.values().any(|tests| tests.contains(&test));
        assert!(exists, "`scripts/test` runs no test {test}");
    }
}

/// Returns the messages that a source logs with this macro. The last string of a call is its
/// message, which may span lines.
fn logged(source: &str, name: &str) -> BTreeSet<String> {
    let name = format!("{name}!(");
    let calls = source.match_indices(&name).filter(|(at, _)| {
        let before = source[..*at].chars().next_back();
        !before.is_some_and(|before| before == '_' || before.is_alphanumeric())
    });
    let message = |(at, _): (usize, &str)| {
        let call = &source[at + name.len()..];
        let call = call.split_once(");").map_or(call, |(call, _)| call);
        let message = call.trim().trim_end_matches(',').strip_suffix('"');
        let message = message.unwrap_or_else(|| panic!("{name}{call}) ends with no message"));
        let message = message.rsplit('"').next().unwrap_or_default();
        let words = message.split(|c: char| c == '\\' || c.is_whitespace());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join(" ")
    };
    calls.map(message).collect()
}

/// Returns the messages that the page quotes for this level.
fn quoted(page: &str, level: &str) -> Vec<String> {
    let item = format!("- {level} `");
    let messages = page.lines().filter_map(|line| line.strip_prefix(&item));
    let messages = messages.filter_map(|item| item.split('`').next());
    messages.map(str::to_owned).collect()
}

#[test]
fn every_message_that_the_page_quotes_is_logged_and_all_but_details_are_on_the_page() {
    let page = page();
    let sources = sources(&root().join("rlock-core/src"));
    for (level, name) in [("WARN", "warn"), ("ERROR", "error"), ("INFO", "info")] {
        let quoted = quoted(&page, level);
        let logged = sources.iter().flat_map(|(_, text)| logged(text, name));
        // The part after a semicolon is advice.
        let short = |message: String| message.split(';').next().unwrap_or_default().to_owned();
        let logged: BTreeSet<String> = logged.map(short).collect();
        assert!(logged.len() > 2, "the sources are read: {logged:?}");
        let once: BTreeSet<String> = quoted.iter().cloned().collect();
        assert_eq!(quoted.len(), once.len(), "each once: {quoted:?}");
        assert_eq!(once, logged, "on the page, and what is logged as {level}");
    }
}
