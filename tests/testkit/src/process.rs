//! Runs other processes, which are controlled by lines of text and can be killed or paused.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::child::LeashedChild;
use crate::{eventually, within};

/// Another process: tests read its output and write its input line by line. It ends with the test.
#[derive(Debug)]
pub struct Worker {
    child: LeashedChild,
    input: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Worker {
    /// Starts the process. Its standard error stays the test's own, and it ignores no signal.
    ///
    /// Give the program by path, e.g. `env!("CARGO_BIN_EXE_worker")`.
    #[must_use = "the process is killed when the worker is dropped"]
    pub fn start(command: &mut Command) -> Self {
        #[cfg(unix)]
        crate::stop_ignoring_signals();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = LeashedChild::spawn(command, None)
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let input = child.child().stdin.take();
        let output = child.child().stdout.take().expect("the output is piped");

        // A thread reads, so that the process never blocks on a full pipe.
        let (sender, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            input,
            lines,
        }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The next line of output, `None` once the output has ended. Panics after `deadline`.
    pub async fn line(&mut self, deadline: Duration) -> Option<String> {
        within(deadline, "the worker prints a line", self.lines.recv()).await
    }

    /// Reads until a line equals `expected`, and returns the lines before it.
    pub async fn expect_line(&mut self, deadline: Duration, expected: &str) -> Vec<String> {
        let mut before = Vec::new();
        let read = async {
            while let Some(line) = self.lines.recv().await {
                if line == expected {
                    return true;
                }
                before.push(line);
            }
            false
        };
        let Ok(seen) = tokio::time::timeout(deadline, read).await else {
            panic!("no {expected:?} from the worker within {deadline:?}; it printed {before:?}")
        };
        assert!(
            seen,
            "the worker ended before it printed {expected:?}; it printed {before:?}"
        );
        before
    }

    /// All lines until the output ends. Panics after `deadline`.
    pub async fn remaining_lines(&mut self, deadline: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.line(deadline).await {
            lines.push(line);
        }
        lines
    }

    /// Writes one line to the process's input.
    pub fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is still open");
        writeln!(input, "{line}").expect("the worker reads its input");
    }

    /// Ends the process's input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Pauses the process (SIGSTOP), like a long pause of its machine.
    pub fn pause(&mut self) {
        self.child.pause();
    }

    /// Resumes a paused process (SIGCONT).
    pub fn resume(&mut self) {
        self.child.resume();
    }

    /// Kills the process (SIGKILL). It releases nothing.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Waits for the process to end by itself. Panics after `deadline`.
    pub async fn wait(&mut self, deadline: Duration) -> ExitStatus {
        let mut status = None;
        eventually(deadline, "the worker ends", async || {
            status = self.child.exited();
            status.is_some()
        })
        .await;
        status.expect("the worker ended")
    }
}
