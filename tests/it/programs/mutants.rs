//! Checks that the mutants by hand fit the sources. Trying them takes half an hour: `cargo run -p rlock-tests --bin mutants`.

use std::{collections::HashSet, fs, path::Path};

use rlock_tests::mutants::{TestName, catalogue, workspace};

#[test]
fn every_mutant_has_a_name_fits_the_sources_and_names_a_test() {
    let (mut names, mut wrong) = (HashSet::new(), Vec::new());
    for mutant in catalogue() {
        let mut require = |holds: bool, what: &str| {
            if !holds {
                wrong.push(format!("{}: {what}", mutant.name));
            }
        };
        require(names.insert(mutant.name.clone()), "is there twice");
        require(exists(&mutant.caught_by), "there is no such test");
        match mutant.texts(workspace()) {
            Ok([sound, broken]) => require(sound != broken, "changes nothing"),
            Err(why) => require(false, &why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!((20..=70).contains(&names.len()), "{} mutants", names.len());

    let mut by_hand = HashSet::new();
    for row in table_of_bugs().lines() {
        match row.split(',').collect::<Vec<_>>()[..] {
            [bug, "by hand", _] => by_hand.insert(bug.to_owned()),
            [_, caught_by, _] => match caught_by.strip_prefix("by hand: ") {
                Some(other) => by_hand.insert(other.to_owned()),
                None => true,
            },
            _ => panic!("not a row: {row}"),
        };
    }
    assert_eq!(
        by_hand, names,
        "`design/data/mutants.csv` has a row for each"
    );
}

fn table_of_bugs() -> String {
    let table = fs::read_to_string(workspace().join("design/data/mutants.csv"));
    table.expect("the table is there")
}

/// `design/data/mutants.csv` says what catches the bugs that were put back by hand at any time.
#[test]
fn each_bug_that_was_caught_is_caught_by_a_test_that_exists() {
    for row in table_of_bugs().lines().skip(1) {
        let test = row.rsplit(',').next().unwrap_or_default();
        let function = test.rsplit("::").next().unwrap_or_default();
        let mut places = ["rlock-proto/src", "rlock-core/src", "tests", "model"].iter();
        let defined = format!("fn {function}(");
        let is_there = places.any(|place| has(&workspace().join(place), &defined));
        assert!(is_there, "no test catches this any more: {row}");
    }
}

/// Checks that the sources of the test's binary contain the function. The program checks that it runs.
fn exists(test: &TestName) -> bool {
    let sources = if test.is_unit {
        "rlock-core/src"
    } else {
        "tests/it"
    };
    let function = test.path.rsplit("::").next().unwrap_or_default();
    // A suite calls its functions with a place.
    has(&workspace().join(sources), &format!("fn {function}("))
}

/// Returns whether a file, or one below a directory, contains this text.
fn has(path: &Path, text: &str) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => {
            entries.any(|entry| has(&entry.expect("the sources are readable").path(), text))
        }
        Err(_) => fs::read_to_string(path).is_ok_and(|source| source.contains(text)),
    }
}
