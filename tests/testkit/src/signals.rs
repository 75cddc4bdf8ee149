//! The signals that child processes inherit.

use std::{fs, sync::Once};

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

/// Gives child processes the default action of the signals that this process was started to ignore, as by `nohup` or by
/// `&` in a script.
///
/// A child inherits that a signal is ignored, but not that it is handled: this process gets a handler that does nothing.
pub fn stop_ignoring_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let runtime = runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.expect("a runtime");
        let ignored = ignored();
        for kind in [
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
        ] {
            if ignored & 1 << (kind.as_raw_value() - 1) != 0 {
                let _context = runtime.enter();
                // The handler outlives the listener.
                drop(signal(kind).expect("a handler"));
            }
        }
        // The caller may be a task, which must not wait for a runtime to end.
        runtime.shutdown_background();
    });
}

/// Returns the set of ignored signals, a bit for each, where the system shows it.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}
