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
const ENTRIES: u32 = 29;

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

/// Marks a test that only `scripts/test-all slow` runs.
const SLOW: &str = "#[ignore = \"scripts/test-all\"]";
/// Marks a test that only `scripts/test-all timing` runs.
const TIMING: &str = "#[ignore = \"scripts/test-all timing\"]";

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
        "tests/testkit/tests",
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

/// Returns the paths of the tests with this mark below a directory, as the test binary names them.
fn marked_below(directory: &Path, module: &str, mark: &str) -> BTreeSet<String> {
    let mut marked = BTreeSet::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy();
        if path.is_dir() {
            marked.extend(marked_below(&path, &format!("{module}{name}::"), mark));
            continue;
        }
        let source = fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        for (at, _) in lines.iter().enumerate().filter(|(_, line)| **line == mark) {
            let function = lines[at..].iter().find_map(|line| line.split_once("fn "));
            let (_, function) = function.expect("the attribute stands before a function");
            let function = function.split('(').next().unwrap_or_default();
            marked.insert(format!("{module}{name}::{function}"));
        }
    }
    marked
}

#[test]
fn the_list_of_slow_tests_is_complete() {
    let script = fs::read_to_string(root().join("scripts/test-all")).expect("the script is there");
    let listed = |array: &str| -> BTreeSet<String> {
        let (_, list) = script
            .split_once(&format!("\n{array}=(\n"))
            .expect("a list");
        let (list, _) = list.split_once("\n)").expect("it ends");
        list.lines().map(|line| line.trim().to_owned()).collect()
    };
    assert_eq!(
        listed("slow"),
        marked_below(&root().join("tests/it"), "", SLOW)
    );
    let attribute = marked_below(&root().join("tests/attribute/tests"), "", SLOW);
    let of = |array: &str| {
        listed(array)
            .into_iter()
            .map(|test| format!("{array}::{test}"))
            .collect::<Vec<_>>()
    };
    assert_eq!([of("shapes"), of("ui")].concat(), Vec::from_iter(attribute));
}

#[test]
fn timing_tests_are_in_the_modules_that_the_script_runs() {
    let script = fs::read_to_string(root().join("scripts/test-all")).expect("the script is there");
    assert!(script.contains("--ignored --test-threads=1 timing::"));
    for directory in ["tests/it", "rlock-cli/tests/cli"] {
        let timing = marked_below(&root().join(directory), "", TIMING);
        assert!(!timing.is_empty(), "{directory} has such tests");
        let elsewhere = timing.iter().find(|test| !test.starts_with("timing::"));
        assert_eq!(elsewhere, None);
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

#[test]
fn messages_are_found_however_a_call_is_written() {
    let source = r#"
        tracing::warn!("alone");
        tracing::warn!(key = %hold.key, "with values");
        warn!(
            policy,
            "over \
             lines",
        );
    "#;
    let found = logged(source, "warn");
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, ["alone", "over lines", "with values"]);
}
