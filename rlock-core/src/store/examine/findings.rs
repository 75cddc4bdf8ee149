//! The findings about a server: good, advice or unsafe, each with what to change.

use std::fmt;

use rlock_proto::escape_control::escape_control;

/// What a check of [`diagnose::store`](crate::diagnose::store) has found at one server, or at all of a store.
///
/// `Display` shows it on one line: `10.0.0.7:6379: eviction: maxmemory-policy allkeys-lru may evict locks; set
/// maxmemory-policy noeviction`. Control characters in the reply of a server are escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The address of the server, and what it is among the others: `10.0.0.7:6379 (replica)`. Or what the servers are
    /// together: `quorum`, `cluster`, `orders (service)`.
    pub server: String,
    /// The name of the check, such as `eviction` or `round trip`.
    pub check: &'static str,
    /// Whether locks are safe.
    pub severity: Severity,
    /// What the check has found.
    pub text: String,
    /// What to do about it, if that is known.
    pub remedy: Option<String>,
}

/// Whether locks are safe, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// The server is as it should be.
    Good,
    /// Locks are safe. The server could serve them better, or the check was not possible.
    Advice,
    /// Locks are not safe, or not granted.
    Unsafe,
}

impl Finding {
    pub(super) fn good(check: &'static str, text: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Good, text)
    }

    pub(super) fn advice(check: &'static str, text: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Advice, text)
    }

    pub(crate) fn harm(check: &'static str, text: impl AsRef<str>) -> Self {
        Self::new(check, Severity::Unsafe, text)
    }

    /// Returns a finding about a server that is not known yet.
    pub(crate) fn new(check: &'static str, severity: Severity, text: impl AsRef<str>) -> Self {
        Self {
            server: String::new(),
            check,
            severity,
            text: escape_control(text.as_ref()),
            remedy: None,
        }
    }

    pub(crate) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            server,
            check,
            text,
            ..
        } = self;
        write!(f, "{server}: {check}: {text}")?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// What a server is in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The one server, or a master.
    Master,
    /// May become the master.
    Replica,
    /// One of a quorum.
    Member,
}

/// All findings about one server, or about several together.
#[derive(Debug)]
pub(crate) struct ServerReport {
    server: String,
    pub(super) findings: Vec<Finding>,
    /// The id of the server's process.
    pub(super) run_id: Option<String>,
    pub(crate) is_reachable: bool,
    pub(crate) grants_locks: bool,
}

impl ServerReport {
    /// Returns a report about the server at this address. Its heading says what the server is in its store.
    pub(super) fn in_part(address: &str, part: Part) -> Self {
        let called = match part {
            Part::Master => "",
            Part::Replica => " (replica)",
            Part::Member => " (member of the quorum)",
        };
        Self::new(&format!("{address}{called}"), part != Part::Replica)
    }

    /// Returns a report about a server without findings yet.
    pub(super) fn new(server: &str, grants_locks: bool) -> Self {
        Self {
            server: escape_control(server),
            findings: Vec::new(),
            run_id: None,
            is_reachable: false,
            grants_locks,
        }
    }

    /// Returns a report that does not belong to a server with locks.
    pub(super) fn of(server: &str, finding: Finding) -> Self {
        Self {
            findings: vec![finding],
            ..Self::new(server, false)
        }
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Turns unsafe findings into advice, because another server of the URL grants the locks.
    #[cfg(feature = "postgres")]
    pub(super) fn weaken(&mut self) {
        for finding in &mut self.findings {
            finding.severity = finding.severity.min(Severity::Advice);
        }
    }

    /// Returns the findings, each with the server.
    pub(crate) fn into_findings(self) -> impl Iterator<Item = Finding> {
        let Self {
            server, findings, ..
        } = self;
        findings.into_iter().map(move |finding| Finding {
            server: server.clone(),
            ..finding
        })
    }

    /// Returns why a server cannot be reached: its only finding.
    pub(super) fn failure(&self) -> String {
        let text = self.findings.first().map_or("", |finding| &finding.text);
        format!("{}: {text}", self.server)
    }
}
