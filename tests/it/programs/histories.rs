//! The harness that records and checks histories: its verdicts.

use std::{fs, path::PathBuf, process::Command};

/// A file that is deleted with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("rlock-histories-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the exit code and the output.
fn histories(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_histories"))
        .args(words)
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), format!("{text}{errors}"))
}

#[test]
fn a_history_with_two_holders_at_once_fails_by_its_exit_code() {
    let file = Scratch::new("bad");
    let grant = |owner: &str, token: u64, at: u64| {
        let common = "call verb=acquire outcome=granted process=0 key=k mode=exclusive lease=1000";
        format!("{common} owner={owner} token={token} asked=0 at={at} until=1000")
    };
    let lines = [grant("a:1", 1, 10), grant("b:1", 2, 20)].join("\n");
    fs::write(&file.0, lines).expect("written");
    let (code, text) = histories(&["check", file.path()]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("OneHolder: 1 violations"), "{text}");
}

#[test]
fn a_run_below_its_floor_does_not_count() {
    let out = Scratch::new("floor");
    let of = ["--store", "memory", "--seconds", "1", "--out", out.path()];
    let (code, text) = histories(&[&of[..], &["--floor", "1000000"]].concat());
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("does not count"), "{text}");
}
