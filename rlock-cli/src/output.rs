//! Standard output. It carries data only: log lines go to standard error.

use std::io::{self, ErrorKind, Write as _};

use serde_json::Value;

use crate::{exit::Failure, text::json};

/// Writes text. A reader that has closed the pipe has seen enough.
pub(crate) fn text(text: &[u8]) -> Result<(), Failure> {
    is_read(text).map(drop)
}

/// Writes text. Returns whether the pipe still has a reader.
pub(crate) fn is_read(text: &[u8]) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::own("write to standard output", &error)),
    }
}

/// Writes an object as one line.
pub(crate) fn object(object: &Value) -> Result<(), Failure> {
    text(format!("{}\n", json(object)).as_bytes())
}
