//! Which signals `rlock run` passes on to the command, and how it receives them.

use std::{
    fs,
    future::{Future, poll_fn},
    io,
    pin::pin,
    task::Poll,
    time::Duration,
};

use nix::sys::signal::SigSet;
use rustix::process::Signal;
use tokio::{
    signal::unix::{self, SignalKind},
    time::sleep,
};

/// The signals that are passed on to the command, with their names.
const FORWARDED: [(&str, Signal); 6] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("TERM", Signal::TERM),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
];

/// The other signals that may stop the command.
const OTHERS: [(&str, Signal); 3] = [
    ("ABRT", Signal::ABORT),
    ("ALRM", Signal::ALARM),
    ("KILL", Signal::KILL),
];

fn named() -> impl Iterator<Item = (&'static str, Signal)> {
    FORWARDED.into_iter().chain(OTHERS)
}

/// Parses a signal for the command line: `TERM`, `SIGTERM` or `15`.
pub(crate) fn parse(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let is_meant =
        |(known, signal): &(&str, Signal)| *known == name || name.parse() == Ok(signal.as_raw());
    named()
        .find(is_meant)
        .map(|(_, signal)| signal)
        .ok_or_else(|| {
            let names: Vec<&str> = named().map(|(name, _)| name).collect();
            format!("expected one of {}", names.join(", "))
        })
}

pub(crate) fn name(signal: Signal) -> &'static str {
    let known = named().find(|(_, known)| *known == signal);
    known.map_or("another", |(name, _)| name)
}

/// Receives the signals that are passed on, except those that this process ignores.
pub(crate) struct Signals {
    listeners: Vec<(Signal, unix::Signal)>,
    /// A bit for each signal that this process was started to ignore.
    ignored: u64,
    /// Whether a signal has arrived by which users and service managers end programs.
    pub(crate) is_stopping: bool,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        // A process inherits the set of blocked signals, and would never receive them. `SIGCHLD` may be among them.
        SigSet::empty().thread_set_mask()?;
        let mut signals = Self {
            listeners: Vec::new(),
            ignored: ignored(),
            is_stopping: false,
        };
        for (_, signal) in FORWARDED {
            signals.add(signal)?;
        }
        Ok(signals)
    }

    /// Receives this signal as well from now on.
    pub(crate) fn add(&mut self, signal: Signal) -> io::Result<()> {
        let is_known = self.listeners.iter().any(|(known, _)| *known == signal);
        // The command inherits that it is ignored, as under `nohup`. A listener would end that.
        if !is_known && self.ignored & 1 << (signal.as_raw() - 1) == 0 {
            let kind = SignalKind::from_raw(signal.as_raw());
            self.listeners.push((signal, unix::signal(kind)?));
        }
        Ok(())
    }

    /// Resolves to the next signal.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no signal.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, listener) in &mut self.listeners {
                if listener.poll_recv(context).is_ready() {
                    self.is_stopping |=
                        ![Signal::USR1, Signal::USR2, Signal::TSTP].contains(signal);
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Forgets all receipts of this signal so far.
    pub(crate) async fn forget(&mut self, signal: Signal) {
        // The runtime passes signals to the listeners only while it waits.
        sleep(Duration::from_millis(1)).await;
        let mut listeners = self.listeners.iter_mut();
        if let Some((_, listener)) = listeners.find(|(known, _)| *known == signal) {
            poll_fn(|context| {
                while listener.poll_recv(context).is_ready() {}
                Poll::Ready(())
            })
            .await;
        }
    }

    /// Returns the future's output, or the signal that interrupted it.
    pub(crate) async fn interrupt<T>(
        &mut self,
        future: impl Future<Output = T>,
    ) -> Result<T, Signal> {
        let future = pin!(future);
        tokio::select! {
            biased;
            signal = self.next() => Err(signal),
            output = future => Ok(output),
        }
    }
}

/// Returns the set of signals that this process ignores, a bit for each, where the system shows it.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["TERM", "SIGTERM", "term", "15"] {
            assert_eq!(parse(text), Ok(Signal::TERM), "{text}");
        }
        assert_eq!(parse("KILL"), Ok(Signal::KILL));
        assert!(parse("STOP").unwrap_err().contains("TERM"));
        assert_eq!(name(Signal::USR1), "USR1");
    }
}
