//! Uses locks for hours and watches what grows. `--help` says how.

use std::process::ExitCode;

fn main() -> ExitCode {
    rlock_tests::soak::main()
}
