//! Writes data to standard output, which has nothing else, because log lines go to standard error.

use std::{
    future::pending,
    io::{self, ErrorKind, Write as _},
    os::fd::AsFd as _,
};

use serde_json::Value;
use tokio::{io::Interest, net::unix::pipe::Sender};

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

/// Resolves when the reader has closed the pipe. A file cannot be watched, and has no reader.
pub(crate) async fn closed() {
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    let Ok(stdout) = stdout.and_then(Sender::from_owned_fd_unchecked) else {
        return pending().await;
    };
    // It may wake up without a cause.
    while !matches!(stdout.ready(Interest::ERROR).await, Ok(ready) if ready.is_error()) {}
}

/// Writes an object as one line.
pub(crate) fn object(object: &Value) -> Result<(), Failure> {
    text(format!("{}\n", json(object)).as_bytes())
}
