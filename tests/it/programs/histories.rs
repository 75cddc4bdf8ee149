//! The harness that records and checks histories: its verdicts.

use std::{fs, process::Command};

/// Returns the path of a file for one test.
fn scratch(name: &str) -> String {
    format!("{}/histories-{name}", env!("CARGO_TARGET_TMPDIR"))
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
    let file = scratch("bad");
    let grant = |owner: &str, token: u64, at: u64| {
        let common = "call verb=acquire outcome=granted process=0 key=k mode=exclusive lease=1000";
        format!("{common} owner={owner} token={token} asked=0 at={at} until=1000")
    };
    let lines = [grant("a:1", 1, 10), grant("b:1", 2, 20)].join("\n");
    fs::write(&file, lines).expect("written");
    let (code, text) = histories(&["check", &file]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("OneHolder: 1 violations"), "{text}");
}

#[test]
fn a_run_below_its_floor_does_not_count() {
    let out = scratch("floor");
    let of = ["--store", "memory", "--seconds", "1", "--out", &out];
    let (code, text) = histories(&[&of[..], &["--floor", "1000000"]].concat());
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("does not count"), "{text}");
}
