//! Runs `scripts/test` on a small package whose tests fail on demand.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rlock_tests::mutants::workspace;

const MANIFEST: &str = r#"
[package]
name = "sample"
edition = "2024"
[lib]
path = "lib.rs"
[[test]]
name = "it"
path = "it.rs"
[[test]]
name = "cli"
path = "cli.rs"
[workspace]
"#;

/// Fails a test each time if `ALWAYS` contains its name, and only the first time if `ONCE` does.
const FAILURES: &str = r#"
fn run(name: &str) {
    let named = |of| std::env::var(of).unwrap_or_default().split(' ').any(|one| one == name);
    assert!(!named("ALWAYS"), "{name} fails always");
    let is_first = std::fs::create_dir(format!("failed-{name}")).is_ok();
    assert!(!named("ONCE") || !is_first, "{name} fails once");
    if named("CRASH") {
        std::process::abort();
    }
}
"#;

/// The small package, which cargo builds only once.
struct Sample(PathBuf);

struct Run {
    passes: bool,
    output: String,
}

impl Sample {
    fn new() -> Self {
        let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gate");
        let _ = fs::remove_dir_all(&package);
        fs::create_dir_all(package.join("scripts")).expect("the directory is writable");
        let file = |name: &str, text: &str| {
            fs::write(package.join(name), text).expect("the directory is writable");
        };
        let tests = |names: &[&str]| {
            let test = |name| format!("#[test] fn {name}() {{ run(\"{name}\") }}\n");
            let tests: String = names.iter().map(test).collect();
            format!("{FAILURES}{tests}")
        };
        file("Cargo.toml", MANIFEST);
        file(
            "Cargo.lock",
            "version = 4\n[[package]]\nname = \"sample\"\nversion = \"0.0.0\"\n",
        );
        file("lib.rs", &tests(&["unit"]));
        file("it.rs", &tests(&["a", "b", "c", "d", "e"]));
        file("cli.rs", &tests(&["f"]));
        for script in ["scripts/test", "scripts/install"] {
            fs::copy(workspace().join(script), package.join(script)).expect("the script is there");
        }
        Self(package)
    }

    /// Runs the script with these failures, which the tests read from their environment.
    fn run(&self, failures: &[(&str, &str)]) -> Run {
        for name in ["unit", "a", "b", "c", "d", "e", "f"] {
            let _ = fs::remove_dir(self.0.join(format!("failed-{name}")));
        }
        let mut command = Command::new("bash");
        command.arg("scripts/test").current_dir(&self.0);
        command.env("RUST_TEST_THREADS", "1");
        command.envs(failures.iter().copied());
        // The settings of the surrounding test run must not affect the sample.
        for inherited in ["CARGO_TARGET_DIR", "RUSTFLAGS", "RUSTC_BOOTSTRAP"] {
            command.env_remove(inherited);
        }
        let output = command.output().expect("bash is there");
        Run {
            passes: output.status.success(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
        }
    }
}

impl Run {
    #[track_caller]
    fn assert_ends_with(&self, passes: bool, lines: &[&str]) {
        let end: Vec<&str> = self.output.lines().rev().take(lines.len()).collect();
        let expected: Vec<&str> = lines.iter().rev().copied().collect();
        assert_eq!(end, expected, "{:?}", self.output);
        assert_eq!(self.passes, passes, "{:?}", self.output);
    }
}

#[test]
fn a_test_that_fails_once_is_named_and_one_that_fails_twice_fails_the_run() {
    let sample = Sample::new();
    sample
        .run(&[])
        .assert_ends_with(true, &["7 passed, 0 failed"]);

    let flaky = |name: &str| format!("flaky: {name} (first failure: target/flaky/{name})");
    let both = [flaky("f"), flaky("a")];
    let lines = [&*both[0], &both[1], "7 passed, 0 failed"];
    sample
        .run(&[("ONCE", "a f")])
        .assert_ends_with(true, &lines);
    let kept = fs::read_to_string(sample.0.join("target/flaky/a")).expect("it is kept");
    assert!(kept.contains("a fails once"), "{kept:?}");

    let run = sample.run(&[("ONCE", "b"), ("ALWAYS", "a")]);
    run.assert_ends_with(false, &["failed: a", &flaky("b"), "6 passed, 1 failed"]);

    let run = sample.run(&[("ONCE", "unit")]);
    run.assert_ends_with(false, &["failed: unit", "6 passed, 1 failed"]);

    let run = sample.run(&[("ONCE", "a unit")]);
    run.assert_ends_with(false, &["failed: unit", "failed: a", "5 passed, 2 failed"]);

    let run = sample.run(&[("ONCE", "a b c d e f")]);
    assert!(
        run.output.ends_with("1 passed, 6 failed\n"),
        "{:?}",
        run.output
    );
    assert!(!run.passes, "six flaky tests are too many");

    // `f` would pass alone, but that must not hide the crash of the other binary.
    let run = sample.run(&[("CRASH", "a"), ("ONCE", "f")]);
    assert!(!run.passes, "{:?}", run.output);
}
