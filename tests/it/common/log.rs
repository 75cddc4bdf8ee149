//! The log of this process, including its libraries.

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

/// Records all log lines of all threads, at every level, from now on.
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

/// Returns the log so far.
pub(crate) fn logged() -> String {
    String::from_utf8_lossy(&log()).into_owned()
}

/// Returns the lines of the log so far that contain this text.
pub(crate) fn logged_of(what: &str) -> Vec<String> {
    let log = log();
    let text = String::from_utf8_lossy(&log);
    let lines = text.lines().filter(|line| line.contains(what));
    lines.map(str::to_owned).collect()
}

/// Returns the lines of the log so far that contain all of these texts.
pub(crate) fn logged_with(texts: &[&str]) -> Vec<String> {
    let mut lines = logged_of(texts[0]);
    lines.retain(|line| texts.iter().all(|text| line.contains(text)));
    lines
}
