//! Runs locks under faults, records a history, and checks it. See `--help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    rlock_tests::histories::main()
}
