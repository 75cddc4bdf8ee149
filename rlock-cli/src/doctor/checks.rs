//! The checks of one server.

use std::collections::HashMap;

use redis::{
    ErrorKind, FromRedisValue, InfoDict, RedisResult,
    ServerErrorKind::{Ask, Moved, NoScript},
    Value,
    aio::MultiplexedConnection,
    cmd,
};
use rlock_core::__private::probe::{self, Probed};

use super::{
    clock,
    connection::{Opened, open, reason},
    findings::{Finding, Report},
    info::{eviction, numbers, version, version_of},
};

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

/// What all servers of a store have in common.
#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) prefix: String,
    pub(super) is_cluster: bool,
}

struct Checks {
    connection: MultiplexedConnection,
    no_resp3: Option<String>,
    part: Part,
    store: Store,
}

/// Examines a server. The heading of the report is its address and what it is called.
pub(super) async fn report(server: Probed, part: Part, store: Store) -> Report {
    let called = match part {
        Part::Master => "",
        Part::Replica => " (replica)",
        Part::Member => " (member of the quorum)",
    };
    let mut report = Report {
        server: format!("{}{called}", server.address()),
        findings: Vec::new(),
        run_id: None,
        is_reachable: false,
        grants_locks: part != Part::Replica,
    };
    match open(&server).await {
        Ok(Opened {
            connection,
            no_resp3,
        }) => {
            report.is_reachable = true;
            let mut checks = Checks {
                connection,
                no_resp3,
                part,
                store,
            };
            checks.run(&mut report).await;
        }
        Err(error) => {
            let text = format!("cannot connect: {}", server.why(error));
            // The others of a quorum or the master grant locks without it.
            report.findings.push(match part {
                Part::Master => Finding::harm("connection", text),
                Part::Replica | Part::Member => Finding::advice("connection", text),
            });
        }
    }
    report
}

impl Checks {
    async fn run(&mut self, report: &mut Report) {
        let info = self.info().await;
        report.run_id = info.as_ref().ok().and_then(|info| info.get("run_id"));
        let times = clock::times(&mut self.connection).await;
        report.findings = vec![
            version(info.as_ref().ok(), self.part),
            eviction(&info),
            self.persistence(&info).await,
            clock::offset(&times),
            self.scripts().await,
            self.tracking().await,
        ];
        report
            .findings
            .extend(self.permissions(info.as_ref().ok()).await);
        report.findings.push(self.operations().await);
        report.findings.push(clock::round_trip(&times));
    }

    async fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query_async(&mut self.connection).await
    }

    /// Returns a setting of the server, unless CONFIG GET is refused.
    async fn setting(&mut self, name: &str) -> Option<String> {
        let reply: RedisResult<HashMap<String, String>> = self.ask(&["CONFIG", "GET", name]).await;
        reply.ok()?.remove(name)
    }

    async fn info(&mut self) -> Result<InfoDict, String> {
        let info = self.ask(&["INFO"]).await;
        info.map_err(|error| reason(&error))
    }

    async fn persistence(&mut self, info: &Result<InfoDict, String>) -> Finding {
        const CHECK: &str = "persistence";
        let Ok(info) = info else {
            return Finding::advice(CHECK, "unknown, because INFO is refused; grant `+info`");
        };
        let appends = info.get::<u8>("aof_enabled") == Some(1);
        if !appends {
            let forgets = match self.setting("save").await.as_deref() {
                Some("") => "a restart forgets all locks",
                _ => "a restart forgets the locks since its last snapshot",
            };
            let text = format!("{forgets}, and their holders are stopped; set `appendonly yes`");
            return Finding::advice(CHECK, text);
        }
        match (self.part, self.setting("appendfsync").await.as_deref()) {
            (_, Some("always")) => Finding::good(CHECK, "appendonly yes, appendfsync always"),
            (Part::Member, Some(other)) => Finding::advice(
                CHECK,
                format!(
                    "appendfsync {other}: after a crash this server may forget a lock and grant it again; set \
                     `appendfsync always`, or keep a crashed server down for the longest lease"
                ),
            ),
            (Part::Member, None) => Finding::advice(
                CHECK,
                "appendonly yes; `appendfsync` is unknown, because CONFIG GET is refused, and has to be `always`",
            ),
            (_, Some(other)) => {
                Finding::good(CHECK, format!("appendonly yes, appendfsync {other}"))
            }
            (_, None) => Finding::good(CHECK, "appendonly yes"),
        }
    }

    async fn scripts(&mut self) -> Finding {
        const CHECK: &str = "scripts";
        let mut call = cmd("EVALSHA");
        // As every script of a lock: some services refuse a script without keys.
        let lock = format!("{}{{any}}", self.store.prefix);
        call.arg("0".repeat(40)).arg(1).arg(lock);
        match call.query_async::<Value>(&mut self.connection).await {
            // A node of a cluster that does not have the slot redirects the call.
            Err(error) if matches!(error.kind(), ErrorKind::Server(NoScript | Moved | Ask)) => {
                Finding::good(CHECK, "EVALSHA works")
            }
            Ok(_) => Finding::good(CHECK, "EVALSHA works"),
            Err(error) => {
                let text = format!(
                    "EVALSHA is refused, so no lock is granted: {}",
                    reason(&error)
                );
                Finding::harm(CHECK, text)
            }
        }
    }

    async fn tracking(&mut self) -> Finding {
        const CHECK: &str = "tracking";
        const EFFECT: &str = "a deleted lock is noticed by the next renewal, not at once";
        if let Some(why) = &self.no_resp3 {
            return Finding::advice(CHECK, format!("no RESP3, so {EFFECT}: {why}"));
        }
        let track = ["CLIENT", "TRACKING", "ON", "NOLOOP"];
        match self.ask::<Value>(&track).await {
            Ok(_) => Finding::good(CHECK, "a deleted lock is noticed at once"),
            Err(error) => {
                let text = format!(
                    "CLIENT TRACKING is refused, so {EFFECT}: {}",
                    reason(&error)
                );
                Finding::advice(CHECK, text)
            }
        }
    }

    async fn permissions(&mut self, info: Option<&InfoDict>) -> Vec<Finding> {
        const CHECK: &str = "permissions";
        let (prefix, is_cluster) = (&self.store.prefix, self.store.is_cluster);
        let refused = probe::refused(&mut self.connection, prefix, is_cluster).await;
        let (needed, better) = match refused {
            Ok(refused) => refused,
            Err(error) => {
                let way_out = "grant `+evalsha` and `+script|load`";
                let way_out = probe::way_out(&error).unwrap_or(way_out);
                let text = format!("cannot be checked: {}; {way_out}", reason(&error));
                return vec![Finding::harm(CHECK, text)];
            }
        };
        let (keys, needed): (Vec<_>, Vec<_>) =
            needed.into_iter().partition(|name| name.starts_with('~'));
        let mut findings = Vec::new();
        if let Some(rule) = keys.first() {
            let text = format!(
                "this user may not write the keys `{prefix}*`: grant `{rule}`, or set the prefix to that of the \
                 service (`--prefix` or `RLOCK_PREFIX` here, `prefix` in the builder)"
            );
            findings.push(Finding::harm(CHECK, text));
        }
        if !needed.is_empty() {
            let text = format!(
                "locks need permissions that this user does not have: {}",
                granted(&needed)
            );
            findings.push(Finding::harm(CHECK, text));
        }
        if !better.is_empty() {
            let text = format!("waits and losses are noticed later: {}", granted(&better));
            findings.push(Finding::advice(CHECK, text));
        }
        if findings.is_empty() {
            let is_told = version_of(info).is_some_and(|(_, version)| numbers(&version).0 >= 7);
            findings.push(if is_told {
                Finding::good(CHECK, "all that locks use")
            } else {
                let text = "cannot be checked before Redis 7, or without `+info`";
                Finding::advice(CHECK, text)
            });
        }
        findings
    }

    /// Checks the permissions that `rlock ls`, `top` and `release` need in addition to those of a service.
    async fn operations(&mut self) -> Finding {
        const CHECK: &str = "operations";
        let none = format!("{}client:none", self.store.prefix);
        let attempts: [(&[&str], &str); 2] = [
            (&["PUBSUB", "CHANNELS", &none], "pubsub|channels"),
            (&["SCAN", "0", "MATCH", &none, "COUNT", "1"], "scan"),
        ];
        let mut refused = Vec::new();
        for (words, name) in attempts {
            if self.ask::<Value>(words).await.is_err() {
                refused.push(name.to_owned());
            }
        }
        if refused.is_empty() {
            return Finding::good(CHECK, "this user may list locks");
        }
        let text = format!("this user may not list all locks: {}", granted(&refused));
        Finding::advice(CHECK, text)
    }
}

/// Returns the rules that grant these permissions. The name of a command lacks its `+`.
fn granted(permissions: &[String]) -> String {
    let rule = |name: &String| {
        let is_channel = name.starts_with('&');
        format!("{}{name}", if is_channel { "" } else { "+" })
    };
    let rules: Vec<String> = permissions.iter().map(rule).collect();
    format!("grant {}", rules.join(" "))
}
