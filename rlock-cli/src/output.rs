//! Standard output. It carries data only: log lines go to standard error.

use std::io::{self, ErrorKind, Write as _};

use serde_json::Value;

use crate::exit::Failure;

/// Writes text. A reader that has closed the pipe has seen enough.
pub(crate) fn text(text: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::own("write to standard output", &error))
        }
        _ => Ok(()),
    }
}

/// Writes an object as one line.
pub(crate) fn object(object: &Value) -> Result<(), Failure> {
    text(format!("{object}\n").as_bytes())
}
