//! The Postgres server of a run: observes its locks, kills it under its clients, and looks for leftovers.

use std::{sync::Arc, time::Duration};

use rlock_core::LockClient;
use rlock_testkit::PostgresServer;
use tokio::{
    sync::{RwLock, watch},
    time::{Instant, sleep},
};
use tokio_postgres::{Client, Error};

use super::{
    clock,
    collect::Recorder,
    record::{Fault, FaultKind, Record},
    schedule::Lane,
    steps::Steps,
    watch::{POLL, Sightings, name_of},
};

/// Longer than any lease or `min_hold` in use.
const LONGEST: Duration = Duration::from_secs(30);

const HELD: &str = "SELECT key, owner FROM rlock.holder WHERE expires_at > clock_timestamp()";
const SESSIONS: &str = "SELECT application_name, pid::text FROM pg_stat_activity WHERE application_name LIKE 'rlock:%'";

/// A server that may be down. Callers wait until it is up.
pub(super) struct Database(RwLock<PostgresServer>);

impl Database {
    /// Starts a server with the schema of the locks. Returns also its URL.
    pub(super) async fn start() -> (Arc<Self>, String) {
        let server = PostgresServer::start();
        let url = server.url();
        drop(LockClient::connect(&url).await.expect("it runs"));
        (Arc::new(Self(RwLock::new(server))), url)
    }

    /// Returns pairs of texts.
    async fn rows(&self, query: &str) -> Vec<(String, String)> {
        self.0.read().await.pairs(query).await
    }

    pub(super) async fn version(&self) -> String {
        let version = "SELECT 'postgres', current_setting('server_version')";
        let (name, version) = self.rows(version).await.remove(0);
        format!("{name} {version}")
    }

    /// Returns the locks that are still held after their leases.
    pub(super) async fn left_by_idle_clients(&self) -> Vec<String> {
        self.still_there(HELD, "a lock of an idle client").await
    }

    /// Returns the locks and sessions that are still there after all clients have ended.
    pub(super) async fn left_without_holder(&self) -> Vec<String> {
        let mut left = self.still_there(HELD, "a lock without a client").await;
        left.extend(
            self.still_there(SESSIONS, "a session of a client that has ended")
                .await,
        );
        left
    }

    async fn still_there(&self, query: &str, what: &str) -> Vec<String> {
        let end = Instant::now() + LONGEST;
        loop {
            let there = self.rows(query).await;
            if there.is_empty() || Instant::now() > end {
                let shown = there
                    .into_iter()
                    .map(|(one, other)| format!("{what}: {one} {other}"));
                return shown.collect();
            }
            sleep(POLL).await;
        }
    }

    /// Applies a fault. Returns whether it had an effect.
    async fn strike_one(&self, kind: FaultKind, lasts: Duration, number: u32) -> bool {
        match kind {
            FaultKind::ServerRestarted => {
                let server = self.0.write().await;
                server.kill();
                sleep(lasts).await;
                tokio::task::block_in_place(|| server.restart());
                true
            }
            FaultKind::ServerPaused => {
                let server = self.0.write().await;
                tokio::task::block_in_place(|| server.pause());
                sleep(lasts).await;
                server.resume();
                true
            }
            FaultKind::SessionPaused => {
                let server = self.0.read().await;
                let sessions = server.pairs(SESSIONS).await;
                let Some((_, session)) = sessions.get(number as usize) else {
                    return false;
                };
                server.pause_session(session);
                sleep(lasts).await;
                server.resume_session(session);
                true
            }
            FaultKind::RowKept => {
                let session = self.0.read().await.session().await;
                let lock = name_of(number);
                let keep = format!("BEGIN; SELECT FROM rlock.lock WHERE key = '{lock}' FOR UPDATE");
                session.batch_execute(&keep).await.expect("it is up");
                sleep(lasts).await;
                session.batch_execute("COMMIT").await.expect("it is up");
                true
            }
            FaultKind::ClientsKilled => {
                let end =
                    format!("SELECT pg_terminate_backend(pid::int) FROM ({SESSIONS}) of_clients");
                self.0.read().await.execute(&end).await;
                true
            }
            FaultKind::AllFlushed => {
                self.0.read().await.execute("DELETE FROM rlock.lock").await;
                true
            }
            FaultKind::LockDeleted => self.0.read().await.delete(&name_of(number)).await,
            kind => unreachable!("{kind} is not a fault of a Postgres server"),
        }
    }
}

async fn pairs(session: &Client, query: &str) -> Result<Vec<(String, String)>, Error> {
    let rows = session.query(query, &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Observes the owners of all locks until the task is aborted.
pub(super) async fn watch(database: Arc<Database>, keys: u32, recorder: Recorder) {
    let mut sightings = Sightings::new(None, |record| recorder.note(record));
    loop {
        let session = database.0.read().await.session().await;
        loop {
            let at = clock::now();
            // The server may be killed.
            let Ok(held) = pairs(&session, HELD).await else {
                break;
            };
            for number in 0..keys {
                let of_lock = held.iter().filter(|(key, _)| *key == name_of(number));
                let owners: Vec<String> = of_lock.map(|(_, owner)| owner.clone()).collect();
                sightings.observe(&format!("k{number}"), &owners, at);
            }
            sleep(POLL).await;
        }
    }
}

/// Applies one fault after the other until the run ends.
pub(super) async fn strike(
    database: Arc<Database>,
    lane: Lane,
    recorder: Recorder,
    over: watch::Receiver<bool>,
) {
    let mut steps = Steps::new(lane, over);
    while let Some(step) = steps.next().await {
        let start = clock::now();
        if database
            .strike_one(step.kind, step.lasts, step.number)
            .await
        {
            let key = (step.kind == FaultKind::LockDeleted).then(|| format!("k{}", step.number));
            recorder.note(Record::Fault(Fault {
                key,
                ..Fault::new(step.kind, start, clock::now())
            }));
        }
    }
}
