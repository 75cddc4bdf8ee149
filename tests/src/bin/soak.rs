//! Uses locks for hours and measures growth. See `--help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    rlock_tests::soak::main()
}
