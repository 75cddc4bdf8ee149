//! Runs the test that must catch a mutant.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use rlock_tests::mutants::TestName;

use super::build::Built;

const LOOK: Duration = Duration::from_millis(10);

pub(super) enum Verdict {
    Passed,
    /// Contains its last panic message.
    Failed(String),
    /// It did not end within this limit.
    Hung(String),
    /// The binary has no test of this name.
    NotRun,
}

/// Runs a test, and writes its output to `log`.
pub(super) fn trial(built: &Built, test: &TestName, log: &Path, limit: Duration) -> Verdict {
    let directory = log.parent().expect("a file in a directory");
    fs::create_dir_all(directory).expect("the target directory is writable");
    let output = File::create(log).expect("the target directory is writable");
    let errors = output.try_clone().expect("a file can be shared");
    let mut running = built
        .command(&test.binary)
        .args(["--exact", "--include-ignored", "--nocapture", &test.path])
        .env("RLOCK_TEST_ROUNDS", "5")
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map(Running)
        .expect("a test can be started");
    let Some(succeeded) = running.end_within(limit) else {
        return Verdict::Hung(format!("it did not end within {limit:?}"));
    };
    drop(running);
    let said = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    match succeeded {
        true if said.contains("test result: ok. 1 passed") => Verdict::Passed,
        true => Verdict::NotRun,
        false => Verdict::Failed(complaint(&said)),
    }
}

/// A running test. Dropping it kills the test and its child processes.
struct Running(Child);

impl Running {
    /// Returns whether it succeeded; `None` if it has not ended.
    fn end_within(&mut self, limit: Duration) -> Option<bool> {
        let end = Instant::now() + limit;
        loop {
            let status = self.0.try_wait().expect("a child can be waited for");
            if let Some(status) = status {
                return Some(status.success());
            }
            if Instant::now() > end {
                return None;
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the last panic message and its place. Some tests panic before on purpose.
fn complaint(said: &str) -> String {
    let Some((_, last)) = said.rsplit_once("panicked at ") else {
        return "it ended without a word".to_owned();
    };
    let lines = last.lines().take_while(|line| !line.starts_with("note: "));
    lines.map(str::trim).take(4).collect::<Vec<_>>().join(" ")
}
