//! What this process logs, its libraries included.

use std::{
    io::{self, Write},
    sync::{Mutex, MutexGuard, Once, PoisonError},
};

use tracing_subscriber::fmt::MakeWriter;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn log() -> MutexGuard<'static, Vec<u8>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        log().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

/// Writes down everything from here on, to the last detail, from every thread.
pub(crate) fn keep_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(Log)
            .init();
    });
}

/// What was logged so far.
pub(crate) fn logged() -> String {
    String::from_utf8_lossy(&log()).into_owned()
}

/// The lines of the log so far that mention this.
pub(crate) fn logged_of(what: &str) -> Vec<String> {
    let mentions = |line: &&str| line.contains(what);
    logged()
        .lines()
        .filter(mentions)
        .map(str::to_owned)
        .collect()
}
