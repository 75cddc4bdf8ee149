//! Compiles test binaries.

use std::{
    collections::{BTreeSet, HashMap},
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rlock_tests::mutants::Binary;
use serde::Deserialize;

pub(super) struct Builder {
    source: PathBuf,
    target: PathBuf,
}

/// The compiled binaries.
pub(super) struct Built {
    paths: HashMap<String, PathBuf>,
    /// The directory of the test's package, where the test runs.
    source: PathBuf,
}

impl Built {
    pub(super) fn command(&self, binary: &Binary) -> Command {
        let (package, target) = match binary {
            Binary::Proto => ("rlock-proto", "rlock_proto"),
            Binary::Core => ("rlock-core", "rlock_core"),
            Binary::Simulator => ("model", "simulate"),
            Binary::Integration(file) => ("tests", file.as_str()),
        };
        let mut command = Command::new(&self.paths[target]);
        command.current_dir(self.source.join(package));
        command
    }
}

/// A message of cargo about one artifact.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Builder {
    pub(super) fn new(source: &Path, target: &Path) -> Self {
        Self {
            source: source.to_owned(),
            target: target.to_owned(),
        }
    }

    /// Compiles the binaries. Returns the compiler's output if that fails.
    pub(super) fn build<'a>(
        &self,
        binaries: impl Iterator<Item = &'a Binary>,
    ) -> Result<Built, String> {
        let (mut files, mut alone) = (BTreeSet::new(), BTreeSet::new());
        for binary in binaries {
            match binary {
                Binary::Proto => alone.insert(["-p", "rlock-proto", "--lib"].as_slice()),
                Binary::Core => alone.insert(&["-p", "rlock-core", "--lib"]),
                Binary::Simulator => alone.insert(&["-p", "rlock-model", "--test", "simulate"]),
                Binary::Integration(file) => files.insert(file.as_str()),
            };
        }
        let mut paths = HashMap::new();
        if !files.is_empty() {
            let files = files.into_iter().flat_map(|file| ["--test", file]);
            let mut words = vec!["-p", "rlock-tests"];
            words.extend(files);
            self.compile(&words, &mut paths)?;
        }
        for words in alone {
            self.compile(words, &mut paths)?;
        }
        Ok(Built {
            paths,
            source: self.source.clone(),
        })
    }

    fn compile(&self, what: &[&str], paths: &mut HashMap<String, PathBuf>) -> Result<(), String> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        // Cargo's variables for this program's package would trigger build scripts again.
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
                command.env_remove(name);
            }
        }
        let output = command
            .current_dir(&self.source)
            .args(["test", "--no-run", "--locked", "--message-format=json"])
            .arg("--target-dir")
            .arg(&self.target)
            .args(what)
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_TERM_COLOR", "never")
            .stdin(Stdio::null())
            .output()
            .expect("cargo is there");
        if !output.status.success() {
            return Err(errors(&output.stdout, &output.stderr));
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(message) = serde_json::from_str(line) else {
                continue;
            };
            if let Message {
                executable: Some(path),
                target: Some(target),
                profile: Some(Profile { test: true }),
            } = message
            {
                paths.insert(target.name, path);
            }
        }
        Ok(())
    }
}

/// Returns the compiler's errors, or those of cargo if there are none.
fn errors(stdout: &[u8], stderr: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Message {
        message: Diagnostic,
    }
    #[derive(Deserialize)]
    struct Diagnostic {
        level: String,
        rendered: String,
    }
    let said: String = String::from_utf8_lossy(stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|line| line.message.level == "error")
        .map(|line| line.message.rendered)
        .collect();
    if said.is_empty() {
        String::from_utf8_lossy(stderr).into_owned()
    } else {
        said
    }
}
