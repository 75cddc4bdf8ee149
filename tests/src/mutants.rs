//! Mutants by hand: known bugs of distributed locks, each with the test that must fail when it is put into the sources.
//!
//! `tests/mutants/*.toml` describes those that `cargo-mutants` cannot make. The program `mutants` tries them.

use std::{fs, path::Path};

use serde::Deserialize;

/// A known bug.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Its name.
    pub name: String,
    /// Its effect, and where it occurred if that is known.
    pub bug: String,
    /// The test that must fail.
    pub caught_by: TestName,
    /// The path of the file that it changes, from `rlock-core/src`.
    pub file: String,
    /// The text to replace, which occurs exactly once.
    pub find: String,
    /// The replacement.
    pub put: String,
}

/// A test, written as `it::…`, or as `rlock-core::…` for a unit test of the core.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct TestName {
    /// Whether it is a unit test of the core.
    pub is_unit: bool,
    /// Its name in its binary.
    pub path: String,
}

impl Mutant {
    /// Returns the file that it changes, in the workspace below `root`, without and with the bug.
    ///
    /// # Errors
    ///
    /// Fails if the file is missing, or if it does not contain the text exactly once.
    pub fn texts(&self, root: &Path) -> Result<[String; 2], String> {
        let text = fs::read_to_string(self.path(root));
        let text = text.map_err(|error| format!("{}: {error}", self.file))?;
        match text.matches(&self.find).count() {
            1 => Ok([text.clone(), text.replacen(&self.find, &self.put, 1)]),
            times => Err(format!(
                "occurs {times} times in {}: {:?}",
                self.file, self.find
            )),
        }
    }

    /// Returns the path of the file that it changes, in the workspace below `root`.
    #[must_use]
    pub fn path(&self, root: &Path) -> std::path::PathBuf {
        root.join("rlock-core/src").join(&self.file)
    }
}

impl TryFrom<String> for TestName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (is_unit, path) = match text.split_once("::") {
            Some(("it", path)) => (false, path),
            Some(("rlock-core", path)) => (true, path),
            _ => {
                return Err(format!(
                    "`{text}` begins with neither `it::` nor `rlock-core::`"
                ));
            }
        };
        let path = path.to_owned();
        Ok(Self { is_unit, path })
    }
}

/// Returns the root of this workspace.
#[must_use]
pub fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .expect("the tests are a member of a workspace")
}

/// Returns all mutants, in the order of their files.
#[must_use]
pub fn catalogue() -> Vec<Mutant> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        mutant: Vec<Mutant>,
    }
    let entries = fs::read_dir(workspace().join("tests/mutants"));
    let entries = entries.expect("the list of mutants is there");
    let paths = entries.map(|entry| entry.expect("the directory is readable").path());
    let mut paths: Vec<_> = paths.collect();
    paths.sort();
    let mutants_in = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).expect("the file is readable");
        let file: Result<File, _> = toml::from_str(&text);
        file.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            .mutant
    };
    paths.into_iter().flat_map(mutants_in).collect()
}
