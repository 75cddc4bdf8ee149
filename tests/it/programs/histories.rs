//! The harness that records and checks histories: small runs, and its verdicts.

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

fn runs_and_is_checked_again(store: &str, seconds: &str, words: &[&str]) -> String {
    let out = Scratch::new(store);
    let all = ["--store", store, "--seconds", seconds, "--out", out.path()];
    let (code, text) = histories(&[&all[..], &["--floor", "10"], words].concat());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("OneHolder: 0 violations"), "{text}");
    let (code, again) = histories(&["check", out.path()]);
    assert_eq!(code, Some(0), "{again}");
    assert!(text.ends_with(&again), "{text}\n\n{again}");
    text
}

#[test]
#[ignore = "scripts/test-all"]
fn a_short_run_on_a_server_leaves_a_history_without_violations() {
    runs_and_is_checked_again("redis", "5", &[]);
}

/// The seed kills the master and cuts it off during the run.
#[test]
#[ignore = "scripts/test-all"]
fn a_short_run_with_sentinels_and_a_failover_leaves_a_history_without_violations() {
    let words = ["--replicas", "1", "--seed", "2"];
    let text = runs_and_is_checked_again("sentinel", "15", &words);
    assert!(text.contains("master_killed"), "{text}");
    let cut = ["master_cut_off", "master_unseen"];
    assert!(cut.iter().any(|fault| text.contains(fault)), "{text}");
}

/// The seed kills and pauses servers, two of them at a time.
#[test]
#[ignore = "scripts/test-all"]
fn a_short_run_on_a_quorum_leaves_a_history_without_violations() {
    let text = runs_and_is_checked_again("quorum", "10", &["--keep-data", "--seed", "7"]);
    for fault in ["server_paused", "server_restarted"] {
        assert!(text.contains(fault), "{text}");
    }
}

/// During the run, the seed fails over a master, moves a slot and cuts clients off from some nodes.
#[test]
#[ignore = "scripts/test-all"]
fn a_short_run_on_a_cluster_leaves_a_history_without_violations() {
    let text = runs_and_is_checked_again("cluster", "15", &["--seed", "6"]);
    for fault in ["master_handed_over", "slot_moved", "replies_swallowed"] {
        assert!(text.contains(fault), "{text}");
    }
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
