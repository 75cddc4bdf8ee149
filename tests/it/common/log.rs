//! The log of this process, including its libraries.

use std::{
    cell::OnceCell,
    io::{self, Write},
    sync::{Mutex, MutexGuard, Once, PoisonError},
};

use tracing_subscriber::fmt::MakeWriter;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

thread_local! {
    /// Where the log of this test begins.
    static START: OnceCell<usize> = const { OnceCell::new() };
}

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

/// Records all log lines of all threads, at every level. What this thread reads of them begins here.
pub(crate) fn keep_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(Log)
            .init();
    });
    START.with(|start| *start.get_or_init(|| log().len()));
}

/// Returns the log since this thread began to keep it. All threads that log wait for the copy, so it is not searched under the
/// mutex.
pub(crate) fn logged() -> String {
    let start = START.with(|start| start.get().copied()).unwrap_or_default();
    let bytes = log()[start..].to_vec();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the lines of that log that contain this text.
pub(crate) fn logged_of(what: &str) -> Vec<String> {
    let text = logged();
    let lines = text.lines().filter(|line| line.contains(what));
    lines.map(str::to_owned).collect()
}
