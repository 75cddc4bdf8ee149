//! Runs locks under faults, records what happened, and checks it. `--help` says how.

use std::process::ExitCode;

fn main() -> ExitCode {
    rlock_tests::histories::main()
}
