//! What the checks of a server find.

use std::fmt::Write as _;

use serde_json::json;

use crate::text::{self, escaped};

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Good,
    /// Locks are safe. The text explains what would be better.
    Advice,
    /// Locks are not safe, or not granted. The text explains what to do.
    Unsafe,
}

/// What one check has found.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) state: State,
    pub(super) text: String,
}

impl Finding {
    pub(super) fn good(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, State::Good, text)
    }

    pub(super) fn advice(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, State::Advice, text)
    }

    pub(super) fn harm(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, State::Unsafe, text)
    }

    fn new(check: &'static str, state: State, text: impl Into<String>) -> Self {
        Self {
            check,
            state,
            text: text.into(),
        }
    }
}

/// All findings about one server.
#[derive(Debug)]
pub(super) struct Report {
    /// The address, and what the server is among others.
    pub(super) server: String,
    pub(super) findings: Vec<Finding>,
    /// The id of the server's process.
    pub(super) run_id: Option<String>,
    pub(super) is_reachable: bool,
    pub(super) grants_locks: bool,
}

impl Report {
    /// Returns a report that does not belong to a server.
    pub(super) fn of(server: String, finding: Finding) -> Self {
        Self {
            server,
            findings: vec![finding],
            run_id: None,
            is_reachable: true,
            grants_locks: false,
        }
    }

    /// Returns the report as a heading and a line for each finding.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", escaped(&self.server));
        for finding in &self.findings {
            let mark = match finding.state {
                State::Good => '✓',
                State::Advice => '!',
                State::Unsafe => '✗',
            };
            let _ = writeln!(
                text,
                "  {mark} {:<11}  {}",
                finding.check,
                escaped(&finding.text)
            );
        }
        text
    }

    /// Returns the report as an object for each finding.
    pub(super) fn json(&self) -> String {
        let mut lines = String::new();
        for finding in &self.findings {
            let state = match finding.state {
                State::Good => "good",
                State::Advice => "advice",
                State::Unsafe => "unsafe",
            };
            let object = json!({
                "server": self.server,
                "check": finding.check,
                "state": state,
                "text": finding.text,
            });
            lines.push_str(&text::json(&object));
            lines.push('\n');
        }
        lines
    }
}
