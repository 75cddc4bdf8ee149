//! Checks that the list of mutants fits the sources. The gate itself takes minutes: `cargo run -p
//! rlock-tests --bin mutants`.

use std::{collections::HashSet, fs, path::Path};

use rlock_tests::mutants::{Binary, TestName, catalogue, workspace};

#[test]
fn every_mutant_can_be_put_into_the_sources() {
    let mutants = catalogue();
    assert!(mutants.len() >= 20, "{} mutants", mutants.len());
    let mut wrong = Vec::new();
    for mutant in &mutants {
        assert!(!mutant.edits.is_empty(), "{} changes nothing", mutant.name);
        match mutant.changes(workspace()) {
            Ok(changes) => {
                let all_do = changes.iter().all(|change| change.before != change.after);
                assert!(all_do, "{} leaves a file as it is", mutant.name);
            }
            Err(why) => wrong.push(format!("{}: {why}", mutant.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_mutant_has_a_name_of_its_own() {
    let mut names = HashSet::new();
    for mutant in catalogue() {
        assert!(
            names.insert(mutant.name.clone()),
            "{} stands there twice",
            mutant.name
        );
        assert!(!mutant.bug.is_empty(), "{} is not explained", mutant.name);
    }
}

#[test]
fn every_test_that_is_to_catch_a_mutant_exists() {
    for mutant in catalogue() {
        assert!(!mutant.caught_by.is_empty(), "no test for {}", mutant.name);
        for test in &mutant.caught_by {
            assert!(exists(test), "{}: there is no test {test}", mutant.name);
        }
    }
}

/// Checks that the sources of the test's binary contain the function. The gate itself checks that
/// it runs.
fn exists(test: &TestName) -> bool {
    let function = test.path.rsplit("::").next().unwrap_or_default();
    // A suite calls its functions with a place.
    let signature = format!("fn {function}(");
    match &test.binary {
        Binary::Proto => has(&workspace().join("rlock-proto/src"), &signature),
        Binary::Core => has(&workspace().join("rlock-core/src"), &signature),
        Binary::Simulator => has(&workspace().join("model/tests"), &signature),
        Binary::Integration(file) => {
            let tests = workspace().join("tests");
            has(&tests.join(format!("{file}.rs")), &signature) || has(&tests.join(file), &signature)
        }
    }
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
