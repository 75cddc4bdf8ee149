//! Mutants: known bugs of distributed locks, with the tests that must fail when a bug is applied to
//! the sources.
//!
//! `tests/mutants/*.toml` describes them. The program `mutants` tries them one by one.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// A known bug.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Its name.
    pub name: String,
    /// Its effect, and where it occurred if that is known.
    pub bug: String,
    /// At least one of these tests must fail.
    pub caught_by: Vec<TestName>,
    /// The changes that introduce the bug.
    #[serde(rename = "edit")]
    pub edits: Vec<Edit>,
}

/// A change of one file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Its path from the root of the workspace.
    pub file: String,
    /// The text to replace, which occurs exactly once.
    pub find: String,
    /// The replacement.
    pub put: String,
}

/// The effect of a mutant on a file.
#[derive(Debug)]
pub struct Change {
    /// Its path from the root of the workspace.
    pub file: String,
    /// The text without the bug.
    pub before: String,
    /// The text with the bug.
    pub after: String,
}

impl Mutant {
    /// Returns its changes of the sources below `root`, without writing them.
    ///
    /// # Errors
    ///
    /// Fails if a file is missing, or if it does not contain the text exactly once.
    pub fn changes(&self, root: &Path) -> Result<Vec<Change>, String> {
        let mut changes: Vec<Change> = Vec::new();
        for edit in &self.edits {
            let known = changes.iter().position(|change| change.file == edit.file);
            let at = if let Some(at) = known {
                at
            } else {
                changes.push(Change::none(root, &edit.file)?);
                changes.len() - 1
            };
            changes[at].after = edit.apply(&changes[at].after)?;
        }
        Ok(changes)
    }
}

impl Change {
    fn none(root: &Path, file: &str) -> Result<Self, String> {
        let text = fs::read_to_string(root.join(file));
        let text = text.map_err(|error| format!("{file}: {error}"))?;
        Ok(Self {
            file: file.to_owned(),
            before: text.clone(),
            after: text,
        })
    }
}

impl Edit {
    fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.put, 1)),
            times => Err(format!(
                "occurs {times} times in {}: {:?}",
                self.file, self.find
            )),
        }
    }
}

/// A test, written as `<binary>::<path of the test>`: `it::…` and `allocations::…` in `tests`,
/// `rlock-core::…` for a unit test of the core, or `rlock-model::…` for a run of the simulator.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct TestName {
    /// The binary that contains it.
    pub binary: Binary,
    /// Its name in that binary.
    pub path: String,
}

/// A test binary.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Binary {
    /// The unit tests of the decisions.
    Proto,
    /// The unit tests of the core.
    Core,
    /// The runs of the simulator.
    Simulator,
    /// An integration test of `tests`, by its name.
    Integration(String),
}

const PROTO: &str = "rlock-proto";
const CORE: &str = "rlock-core";
const SIMULATOR: &str = "rlock-model";

impl TryFrom<String> for TestName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let Some((binary, path)) = text.split_once("::") else {
            return Err(format!(
                "`{text}` names no test: write `<binary>::<path of the test>`"
            ));
        };
        let binary = match binary {
            PROTO => Binary::Proto,
            CORE => Binary::Core,
            SIMULATOR => Binary::Simulator,
            file => Binary::Integration(file.to_owned()),
        };
        Ok(Self {
            binary,
            path: path.to_owned(),
        })
    }
}

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proto => PROTO,
            Self::Core => CORE,
            Self::Simulator => SIMULATOR,
            Self::Integration(file) => file,
        })
    }
}

impl fmt::Display for TestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.binary, self.path)
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
    let mutants_in = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("the file is readable");
        let file: File = toml::from_str(&text)
            .unwrap_or_else(|error| panic!("{} is not a list of mutants: {error}", path.display()));
        file.mutant
    };
    let directory = workspace().join("tests/mutants");
    let entries = fs::read_dir(directory).expect("the list of mutants is there");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("the directory is readable").path())
        .collect();
    files.sort();
    files.into_iter().flat_map(mutants_in).collect()
}
