//! The workspace of the shapes, separate from the tested one.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use serde_json::Value;

use super::corpus::Source;
use super::diagnostics::Diagnostic;

/// Lints that are allowed by default, but check the code of an expansion.
const LINTS: [&str; 15] = [
    "clippy::all",
    "clippy::pedantic",
    "clippy::nursery",
    "future_incompatible",
    "let_underscore",
    "nonstandard_style",
    "rust_2018_idioms",
    "rust_2024_compatibility",
    "single_use_lifetimes",
    "trivial_casts",
    "unit_bindings",
    "unused",
    "unused_lifetimes",
    "unused_qualifications",
    "unused_results",
];

/// A crate of shapes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Kind {
    pub(crate) edition: &'static str,
    /// Whether the compiler rejects the shapes even without the attribute.
    pub(crate) rejected: bool,
}

impl Kind {
    fn name(self, locked: bool) -> String {
        let what = if self.rejected { "rejected" } else { "shapes" };
        let variant = if locked { "locked" } else { "plain" };
        format!("{what}-{}-{variant}", self.edition)
    }
}

pub(crate) struct Project {
    folder: PathBuf,
    /// The crates; each has its sources.
    pub(crate) crates: BTreeMap<Kind, Vec<Source>>,
    support: String,
}

/// The result of a crate: its diagnostics, and its program if one was built.
pub(crate) type Outcome = (Vec<Diagnostic>, Option<PathBuf>);

impl Project {
    pub(crate) fn new(folder: &Path, crates: BTreeMap<Kind, Vec<Source>>, support: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            crates,
            support: support.to_owned(),
        }
    }

    /// Writes all crates.
    pub(crate) fn write(&self) -> io::Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize()?;
        let mut members = Vec::new();
        for (kind, sources) in &self.crates {
            for locked in [false, true] {
                let name = kind.name(locked);
                let member = self.folder.join(&name);
                let mut modules = String::new();
                let mut runs = String::new();
                for source in sources {
                    let text = if locked {
                        source.locked()
                    } else {
                        source.text.clone()
                    };
                    let _ = writeln!(modules, "pub mod {};", source.name);
                    if text.contains("pub fn runs(") {
                        let _ = writeln!(
                            runs,
                            "    runs.file({0:?});\n    {0}::runs(&mut runs);",
                            source.name
                        );
                    }
                    write(&member.join(format!("src/{}.rs", source.name)), &text)?;
                }
                write(&member.join("src/support.rs"), &self.support)?;
                // Only this edition needs it for the paths of `use`.
                let dependency = match kind.edition {
                    "2015" => "extern crate rlock_core;\n",
                    _ => "",
                };
                let library = format!(
                    "{dependency}#[macro_use]\npub mod support;\n{modules}\npub fn runs() -> support::Runs {{\n    let mut runs = \
                     support::Runs::default();\n{runs}    runs\n}}\n"
                );
                write(&member.join("src/lib.rs"), &library)?;
                if !kind.rejected {
                    let krate = name.replace('-', "_");
                    let program = format!(
                        "fn main() {{\n    {krate}::support::install();\n    {krate}::runs().print();\n}}\n"
                    );
                    write(&member.join("src/main.rs"), &program)?;
                }
                write(
                    &member.join("Cargo.toml"),
                    &member_manifest(&name, kind.edition),
                )?;
                members.push(name);
            }
        }
        let manifest = workspace_manifest(&members, &root);
        if write(&self.folder.join("Cargo.toml"), &manifest)? {
            // Cargo removes unused parts of the lock file, so it is not compared.
            fs::copy(root.join("Cargo.lock"), self.folder.join("Cargo.lock"))?;
        }
        Ok(())
    }

    /// Compiles all crates with clippy, and returns the diagnostics of each crate, without and with the attribute.
    pub(crate) fn compile(&self) -> Result<BTreeMap<(Kind, bool), Outcome>, String> {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(&self.folder)
            .args([
                "build",
                "--offline",
                "--keep-going",
                "--workspace",
                "--message-format=json",
            ])
            .arg("--target-dir")
            .arg(self.folder.join("target"))
            .env("RUSTC_WORKSPACE_WRAPPER", clippy()?)
            .env("CLIPPY_ARGS", clippy_arguments())
            .env("CLIPPY_CONF_DIR", &self.folder)
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("CARGO_BUILD_TARGET");
        let output = cargo
            .output()
            .map_err(|error| format!("cargo does not start: {error}"))?;
        let mut outcomes = BTreeMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(message) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let target = &message["target"];
            let Some((kind, locked)) = self.crate_of(&target["src_path"]) else {
                continue;
            };
            let (diagnostics, program): &mut Outcome = outcomes.entry((kind, locked)).or_default();
            match message["reason"].as_str() {
                Some("compiler-message") if target["kind"][0] == "lib" => {
                    diagnostics.extend(Diagnostic::of(&message["message"]));
                }
                Some("compiler-artifact") => {
                    if let Some(path) = message["executable"].as_str() {
                        *program = Some(path.into());
                    }
                }
                _ => {}
            }
        }
        if outcomes.len() < 2 * self.crates.len() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the shapes were not compiled:\n{errors}"));
        }
        Ok(outcomes)
    }

    fn crate_of(&self, path: &Value) -> Option<(Kind, bool)> {
        let path = Path::new(path.as_str()?);
        let member = path.strip_prefix(&self.folder).ok()?.iter().next()?;
        let kinds = self
            .crates
            .keys()
            .flat_map(|kind| [(*kind, false), (*kind, true)]);
        kinds
            .into_iter()
            .find(|(kind, locked)| *member == *kind.name(*locked))
    }
}

fn member_manifest(name: &str, edition: &str) -> String {
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"{edition}\"\npublish = false\n\n[dependencies]\n\
         async-trait.workspace = true\nfutures-util.workspace = true\nrlock-core.workspace = true\n\
         tokio.workspace = true\ntracing.workspace = true\n"
    )
}

fn workspace_manifest(members: &[String], root: &Path) -> String {
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n[workspace.dependencies]\nasync-trait = \"0.1\"\n\
         futures-util = {{ version = \"0.3\", default-features = false, features = [\"alloc\"] }}\n\
         rlock-core = {{ path = '{}', default-features = false, features = [\"macros\"] }}\n\
         tokio = {{ version = \"1\", default-features = false, features = [\"macros\", \"rt\", \"sync\", \"time\"] }}\n\
         tracing = {{ version = \"0.1\", default-features = false, features = [\"std\", \"attributes\"] }}\n\n\
         [profile.dev]\ndebug = false\nincremental = false\n",
        root.join("rlock-core").display()
    )
}

/// Writes a file if its content differs, because cargo compares modification times. Returns whether it wrote.
fn write(path: &Path, text: &str) -> io::Result<bool> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)?;
    Ok(true)
}

/// Returns the compiler with clippy's lints. `cargo clippy` builds no program.
fn clippy() -> Result<PathBuf, String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let printed = Command::new(rustc).args(["--print", "sysroot"]).output();
    let printed = printed.map_err(|error| format!("rustc does not start: {error}"))?;
    let root = String::from_utf8_lossy(&printed.stdout);
    let program = format!("clippy-driver{}", env::consts::EXE_SUFFIX);
    let program = Path::new(root.trim()).join("bin").join(program);
    if program.exists() {
        Ok(program)
    } else {
        Err(
            "the shapes are compiled with clippy, which is missing: `rustup component add clippy`"
                .to_owned(),
        )
    }
}

/// Enables lints, and makes none of them an error.
fn clippy_arguments() -> String {
    let mut arguments = String::new();
    for lint in LINTS {
        let _ = write!(arguments, "-W{lint}__CLIPPY_HACKERY__");
    }
    arguments + "--cap-lints=warn__CLIPPY_HACKERY__"
}
