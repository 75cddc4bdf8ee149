//! Examines one server: persistence, eviction, replication, scripts, tracking and permissions.

use std::collections::HashMap;

use redis::{
    ErrorKind, FromRedisValue, InfoDict, RedisResult,
    ServerErrorKind::{Ask, Moved, NoScript},
    Value,
    aio::MultiplexedConnection,
    cmd,
};

use super::{
    clock,
    connection::{Opened, Peer},
    findings::{Finding, Part, ServerReport},
    info::{eviction, numbers, unknown, version, version_of},
};
use crate::store::{
    keyspace::Keyspace,
    redis::{
        capabilities,
        capabilities::tracking,
        errors::{DECLARED_ONLY, is_undeclared, without_kind},
    },
};

struct Checks<'a> {
    connection: MultiplexedConnection,
    no_resp3: Option<String>,
    part: Part,
    prefix: &'a str,
    is_of_cluster: bool,
}

/// Examines a server.
pub(super) async fn report(peer: Peer, part: Part) -> ServerReport {
    let mut report = ServerReport::in_part(&peer.address(), part);
    match peer.open().await {
        Ok(Opened {
            connection,
            no_resp3,
        }) => {
            report.is_reachable = true;
            let mut checks = Checks {
                connection,
                no_resp3,
                part,
                prefix: &peer.options.prefix,
                is_of_cluster: peer.is_of_cluster,
            };
            checks.run(&mut report).await;
        }
        Err(error) => {
            let text = format!("cannot connect: {}", peer.why(error));
            // The others of a quorum or the master grant locks without it.
            report.add(match part {
                Part::Master => Finding::harm("connection", text),
                Part::Replica | Part::Member => Finding::advice("connection", text),
            });
        }
    }
    report
}

impl Checks<'_> {
    async fn run(&mut self, report: &mut ServerReport) {
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
        info.map_err(|error| without_kind(&error))
    }

    async fn persistence(&mut self, info: &Result<InfoDict, String>) -> Finding {
        const CHECK: &str = "persistence";
        let Ok(info) = info else {
            return unknown(CHECK);
        };
        let appends = info.get::<u8>("aof_enabled") == Some(1);
        if !appends {
            let forgets = match self.setting("save").await.as_deref() {
                Some("") => "a restart forgets all locks",
                _ => "a restart forgets the locks since its last snapshot",
            };
            let text = format!("{forgets}, and their holders are stopped");
            return Finding::advice(CHECK, text).with_remedy("set `appendonly yes`");
        }
        match (self.part, self.setting("appendfsync").await.as_deref()) {
            (_, Some("always")) => Finding::good(CHECK, "appendonly yes, appendfsync always"),
            (Part::Member, Some(other)) => {
                let text = format!(
                    "appendfsync {other}: after a crash this server may forget a lock and grant it again"
                );
                Finding::advice(CHECK, text).with_remedy(
                    "set `appendfsync always`, or keep a crashed server down for the longest lease",
                )
            }
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
        let lock = format!("{}{{any}}", self.prefix);
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
                    without_kind(&error)
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
        match tracking(None)
            .query_async::<Value>(&mut self.connection)
            .await
        {
            Ok(_) => Finding::good(CHECK, "a deleted lock is noticed at once"),
            Err(error) => {
                let text = format!(
                    "CLIENT TRACKING is refused, so {EFFECT}: {}",
                    without_kind(&error)
                );
                Finding::advice(CHECK, text)
            }
        }
    }

    async fn permissions(&mut self, info: Option<&InfoDict>) -> Vec<Finding> {
        const CHECK: &str = "permissions";
        let prefix = self.prefix;
        let keyspace = if self.is_of_cluster {
            Keyspace::at_node(prefix.to_owned(), "any")
        } else {
            Keyspace::new(prefix.to_owned())
        };
        let refused = capabilities::refused(&mut self.connection, &keyspace, false);
        let (needed, better) = match refused.await {
            Ok(refused) => refused,
            Err(error) => {
                let text = format!("cannot be checked: {}", without_kind(&error));
                let remedy = if is_undeclared(&error) {
                    DECLARED_ONLY
                } else {
                    "grant `+evalsha` and `+script|load`"
                };
                return vec![Finding::harm(CHECK, text).with_remedy(remedy)];
            }
        };
        let (keys, needed): (Vec<_>, Vec<_>) =
            needed.into_iter().partition(|name| name.starts_with('~'));
        let mut findings = Vec::new();
        if let Some(rule) = keys.first() {
            let text = format!("this user may not write the keys `{prefix}*`");
            let remedy = format!(
                "grant `{rule}`, or set the prefix to that of the service (`prefix` of the builder, `--prefix` or \
                 `RLOCK_PREFIX` of the command `rlock`)"
            );
            findings.push(Finding::harm(CHECK, text).with_remedy(remedy));
        }
        if !needed.is_empty() {
            let text = "locks need permissions that this user does not have";
            findings.push(Finding::harm(CHECK, text).with_remedy(grant(&needed)));
        }
        if !better.is_empty() {
            let text = "waits and losses are noticed later";
            findings.push(Finding::advice(CHECK, text).with_remedy(grant(&better)));
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
        let none = format!("{}client:none", self.prefix);
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
        let text = "this user may not list all locks";
        Finding::advice(CHECK, text).with_remedy(grant(&refused))
    }
}

/// Returns the remedy that grants these permissions. The name of a command lacks its `+`.
fn grant(permissions: &[String]) -> String {
    let rule = |name: &String| {
        let is_channel = name.starts_with('&');
        format!("{}{name}", if is_channel { "" } else { "+" })
    };
    let rules: Vec<String> = permissions.iter().map(rule).collect();
    format!("grant {}", rules.join(" "))
}
