//! Runs the simulator: the machine that ships, under faults.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// Runs the simulator with these arguments.
fn simulate(words: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_simulate");
    let output = Command::new(program).args(words).output();
    output.expect("the program starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn passes(words: &[&str]) -> String {
    // Without the trace of a smaller run, which takes time to find: `scripts/simulate` shows it for the same arguments.
    let output = simulate(&[words, &["--lines", "0"]].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    text(&output)
}

#[test]
fn a_seed_repeats_a_run() {
    let digests = || {
        let printed = passes(&["--seed", "3", "--seeds", "6", "--inputs", "30000"]);
        let words: Vec<&str> = printed.split_whitespace().collect();
        let digests = words.windows(2).filter(|pair| pair[0] == "digest");
        let digests: Vec<String> = digests.map(|pair| pair[1].to_owned()).collect();
        assert_eq!(digests.len(), 6, "{printed}");
        digests
    };
    let first = digests();
    assert_eq!(first, digests());
    assert_ne!(first[0], first[1]);
}

#[test]
fn fleets_under_faults_break_no_rule() {
    for world in ["server", "crowd", "quorum", "calm", "modes"] {
        passes(&["--world", world, "--seeds", "5", "--inputs", "100000"]);
    }
}

/// Many plans, because a bug often needs a certain option or fault. `scripts/mutants` runs this for each change of the machine.
#[test]
fn short_runs_of_many_fleets_break_no_rule() {
    for world in ["server", "modes", "quorum", "calm"] {
        passes(&[
            "--world", world, "--seed", "20", "--seeds", "32", "--inputs", "8000",
        ]);
    }
}

/// The entries of the corpus have found bugs, which their comments name.
#[test]
fn seeds_that_found_bugs_pass() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/simulations");
    let entries = fs::read_dir(corpus).expect("the corpus is there");
    for entry in entries {
        let text = fs::read_to_string(entry.expect("a file").path()).expect("a text");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        passes(&lines.flat_map(str::split_whitespace).collect::<Vec<_>>());
    }
}

#[test]
fn two_clients_hold_a_lock_if_they_stay_at_a_replaced_master_and_not_if_they_leave_it() {
    let run = |seed: u32, policy: &[&str]| {
        let seed = seed.to_string();
        let run = ["--world", "server", "--seed", &seed, "--inputs", "20000"];
        simulate(&[&run, policy, &["--lines", "0"]].concat())
    };
    let has_two = |seed: &u32| {
        let printed = text(&run(*seed, &["--stay"]));
        printed.contains("at most one owner holds a lock")
    };
    let seed = (92..200).find(has_two).expect("a seed shows it");
    assert!(run(seed, &[]).status.success(), "{seed}");
}
