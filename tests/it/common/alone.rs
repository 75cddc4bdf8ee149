//! Support for tests that need their own process, because they change or observe process-wide
//! state.

use std::{
    env,
    process::{Command, Stdio},
};

/// Set in the child process.
const ALONE: &str = "RLOCK_TEST_ALONE";

/// Runs the test in a child process, and returns `false` once it has passed there. Returns `true` in the child.
pub(crate) fn is_alone(module: &str, test: &str) -> bool {
    is_alone_with(module, test, &[])
}

/// Like [`is_alone`]. The child process has these environment variables, too.
pub(crate) fn is_alone_with(module: &str, test: &str, variables: &[(&str, &str)]) -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let (_, module) = module.split_once("::").expect("a module of this crate");
    let test = format!("{module}::{test}");
    let child = Command::new(env::current_exe().expect("the path of this program"))
        .args(["--exact", &test, "--include-ignored", "--nocapture"])
        .env(ALONE, "1")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("this program can be started");
    let output = [child.stdout, child.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    let passed = output.contains("test result: ok. 1 passed");
    assert!(child.status.success() && passed, "{test}: {output}");
    false
}

/// Does the rest of the test in a child process that runs no other test.
macro_rules! alone {
    ($test:ident) => {
        if !crate::common::alone::is_alone(module_path!(), stringify!($test)) {
            return;
        }
    };
}

pub(crate) use alone;
