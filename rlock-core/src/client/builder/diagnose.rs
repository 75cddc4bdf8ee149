//! Runs `diagnose::store` with the settings of a builder: examines the servers as its client would use them, and acquires a
//! lock there.

use std::{
    panic::resume_unwind,
    sync::Arc,
    time::{Duration, Instant},
};

use rlock_proto::quorum::majority;

use super::LockClientBuilder;
use crate::{
    error::LockError,
    store::{
        endpoint::Endpoint,
        examine,
        examine::{Finding, ServerReport, Severity, failures, whole_quorum},
        options::StoreOptions,
    },
    store_url::StoreUrl,
};

/// What an operator can do about a refusal that contains this word. The other errors contain their own advice.
const REMEDIES: [(&str, &str); 2] = [
    (
        "BUSY",
        "wait until the script ends that runs on it, or call `SCRIPT KILL`",
    ),
    ("NOPERM", "grant the permissions above"),
];

impl LockClientBuilder {
    /// Returns what [`diagnose::store`](crate::diagnose::store) returns.
    pub(crate) async fn diagnose(&self, store: StoreUrl) -> Result<Vec<Finding>, LockError> {
        let endpoint = store.endpoint()?;
        if matches!(endpoint, Endpoint::Memory(_)) {
            let reason = "the embedded store has no servers, and always grants locks; give the URL of a server";
            return Err(LockError::invalid_option(
                "url",
                format!("`{store}`"),
                reason,
            ));
        }
        let mut builder = self.clone().second_connection(false);
        builder.connect_retry_for = Duration::ZERO;
        builder.check_for(&endpoint)?;
        // The examination has a runtime of its own, as a client does, so any executor can await it.
        let (thread, _) = builder.clock.start()?;
        let examined = thread.runtime.spawn(async move {
            let started = Instant::now();
            let examined = builder.examine(endpoint).await;
            examined.map_err(|failures| LockError::Unavailable {
                action: "examine the store".to_owned(),
                waited: started.elapsed(),
                source: Arc::from(Box::from(failures)),
            })
        });
        let reports = match examined.await {
            Ok(examined) => examined?,
            Err(error) => resume_unwind(error.into_panic()),
        };
        let findings = reports.into_iter().flat_map(ServerReport::into_findings);
        Ok(findings.collect())
    }

    /// Examines all servers. Returns why the store cannot be reached, if it cannot.
    async fn examine(&self, endpoint: Endpoint) -> Result<Vec<ServerReport>, String> {
        let options = StoreOptions {
            response_timeout: self.options.response_timeout,
            ..self.store.clone()
        };
        match endpoint {
            Endpoint::Memory(_) => Ok(Vec::new()),
            Endpoint::Server(server) => {
                let mut reports = examine::server(server.clone(), &options).await;
                if !reports.iter().any(|report| report.is_reachable) {
                    return Err(failures(&reports));
                }
                self.acquire_one(Endpoint::Server(server), &mut reports)
                    .await;
                Ok(reports)
            }
            #[cfg(feature = "postgres")]
            Endpoint::Postgres(database) => {
                let mut reports = examine::database(&database, &options).await;
                if !reports.iter().any(|report| report.is_reachable) {
                    return Err(failures(&reports));
                }
                self.acquire_one(Endpoint::Postgres(database), &mut reports)
                    .await;
                Ok(reports)
            }
            Endpoint::Cluster(cluster) => {
                let mut reports = examine::cluster(cluster.clone(), &options).await?;
                self.acquire_one(Endpoint::Cluster(cluster), &mut reports)
                    .await;
                Ok(reports)
            }
            Endpoint::Quorum(members) => {
                let (count, mut reached, mut reports) = (members.len(), 0, Vec::new());
                for member in members {
                    let mut examined = examine::member(member.clone(), &options).await;
                    if examined.iter().any(|report| report.is_reachable) {
                        reached += 1;
                        self.acquire_one(Endpoint::Server(member), &mut examined)
                            .await;
                    }
                    reports.extend(examined);
                }
                if reached < majority(count) {
                    return Err(failures(&reports));
                }
                whole_quorum(&mut reports, count);
                Ok(reports)
            }
        }
    }

    /// Acquires a lock, as a service does. Adds the outcome to the report of the server that grants it, or of the
    /// cluster.
    async fn acquire_one(&self, endpoint: Endpoint, reports: &mut [ServerReport]) {
        const CHECK: &str = "grant";
        let Some(report) = reports.iter_mut().find(|report| report.grants_locks) else {
            return;
        };
        let started = Instant::now();
        let probed = async {
            let client = self.clone().open(endpoint).await?;
            let probed = client.probe().await;
            // The probe's outcome is the finding, even if the shutdown fails.
            let _ = client.shutdown().await;
            probed
        };
        report.add(match probed.await {
            Ok(()) => {
                let took = started.elapsed().as_millis();
                let text = format!("acquired and released a lock within {took} ms");
                Finding::new(CHECK, Severity::Good, text)
            }
            Err(error) => refused(CHECK, &error),
        });
    }
}

fn refused(check: &'static str, error: &LockError) -> Finding {
    let said = match error {
        LockError::Unavailable { source, .. } | LockError::Refused { source, .. } => {
            source.to_string()
        }
        other => format!("{other:#}"),
    };
    let finding = Finding::harm(check, format!("no lock is granted: {said}"));
    let said = said.to_uppercase();
    match REMEDIES.iter().find(|(word, _)| said.contains(word)) {
        Some((_, remedy)) => finding.with_remedy(*remedy),
        None => finding,
    }
}
