//! The sessions of a client in Postgres: which silence ends one and which does not, and what delays the next one.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use rlock_core::{Credentials, LockClientBuilder};
use rlock_testkit::{PostgresServer, eventually, within};
use tokio_postgres::NoTls;

use crate::common::{
    self, LONG,
    log::{keep_log, logged_with},
};

/// A number that changes if a session of a client is replaced.
const SESSIONS: &str =
    "SELECT sum(pid)::bigint FROM pg_stat_activity WHERE starts_with(application_name, 'rlock:')";

fn builder() -> LockClientBuilder {
    let builder = common::builder();
    builder.default_lease(LONG * 10).default_wait(LONG)
}

/// Each waits for a quarter of the response time-out, and a session is silent after half of it.
#[tokio::test]
async fn changes_that_wait_for_rows_one_after_the_other_are_not_taken_for_silence() {
    let server = PostgresServer::start();
    let builder = builder().response_timeout(Duration::from_secs(16));
    let client = builder.connect(server.url()).await.expect("it runs");
    for key in ["a", "b", "c"] {
        let guard = client.lock(key).acquire().await.expect("free");
        guard.release().await.expect("held");
    }
    let before = server.number(SESSIONS).await;
    let session = server.session().await;
    let keep = "BEGIN; SELECT FROM rlock.lock FOR UPDATE";
    session.batch_execute(keep).await.expect("it may");
    let calls = ["a", "b", "c"].map(|key| client.lock(key).try_acquire());
    for refused in join_all(calls).await {
        let error = refused.expect_err("the row is kept");
        let text = format!("{error:#}");
        assert!(text.contains("has locked the row"), "{text}");
    }
    assert_eq!(server.number(SESSIONS).await, before);
}

/// A client that holds a lock may be idle for a third of its lease.
#[tokio::test]
async fn an_idle_session_outlives_the_time_out_of_the_server() {
    let server = PostgresServer::start();
    let limit = "ALTER DATABASE postgres SET idle_session_timeout = '10s'";
    server.execute(limit).await;
    let client = builder().connect(server.url()).await.expect("it runs");
    let _guard = client.lock("k").acquire().await.expect("free");
    let before = server.number(SESSIONS).await;
    let (other, connection) = tokio_postgres::connect(&server.url(), NoTls)
        .await
        .expect("it runs");
    let ended = within(LONG, "the server ends another session", connection).await;
    ended.expect_err("a time-out");
    drop(other);
    assert_eq!(server.number(SESSIONS).await, before);
}

/// Otherwise a late request of the former session would run after one of the next session.
#[tokio::test]
async fn a_role_that_may_not_end_the_former_session_is_named_once_and_waits_for_its_end() {
    keep_log();
    let server = PostgresServer::start();
    drop(builder().connect(server.url()).await.expect("it runs"));
    server
        .execute(
            "CREATE ROLE before_rotation LOGIN; CREATE ROLE after_rotation LOGIN;
             GRANT USAGE ON SCHEMA rlock TO before_rotation, after_rotation;
             GRANT ALL ON ALL TABLES IN SCHEMA rlock TO before_rotation, after_rotation",
        )
        .await;
    let is_rotated = Arc::new(AtomicBool::new(false));
    let rotated = Arc::clone(&is_rotated);
    let builder = builder()
        .response_timeout(Duration::from_secs(2))
        .credentials(move || {
            let is_rotated = rotated.load(Ordering::SeqCst);
            let user = ["before_rotation", "after_rotation"][usize::from(is_rotated)];
            async move { Ok::<_, io::Error>(Credentials::new(user, "")) }
        });
    let url = server.url().replace("postgres@", "");
    let client = builder.connect(&url).await.expect("it runs");
    let changes = "SELECT pid::bigint FROM pg_stat_activity WHERE starts_with(application_name, 'rlock:')
        AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory') AND usename = 'before_rotation'";
    let process = server.number(changes).await.to_string();
    server.pause_session(&process);
    is_rotated.store(true, Ordering::SeqCst);
    let waiting = tokio::spawn(client.lock("rotated").acquire());
    let warned = || logged_with(&["WARN", "may not end the client's former session"]).len();
    eventually(LONG, "the refusal is logged", async || warned() > 0).await;
    server.resume_session(&process);
    let guard = waiting.await.expect("no panic").expect("free");
    guard.release().await.expect("held");
    assert_eq!(warned(), 1);
}

/// Commits with notifications wait for each other, and one of them waits for a standby.
#[tokio::test]
async fn a_commit_that_waits_for_another_one_is_not_taken_for_a_kept_row() {
    let server = PostgresServer::start();
    let builder = || builder().response_timeout(Duration::from_secs(16));
    let one = builder().connect(server.url()).await.expect("it runs");
    let other = builder().connect(server.url()).await.expect("it runs");
    let _guard = one.lock("k").acquire().await.expect("free");
    server.set("synchronous_standby_names", "nobody").await;
    let slow = server.session().await;
    // The first ones may precede the setting.
    let slow = tokio::spawn(async move {
        let notify = "SET synchronous_commit = on; NOTIFY anything";
        loop {
            slow.batch_execute(notify).await.expect("committed");
        }
    });
    eventually(LONG, "a commit waits", async || {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        server.number(waits).await == 1
    })
    .await;
    let error = other.request_release("k").await;
    let text = format!("{:#}", error.expect_err("it cannot commit"));
    assert!(
        text.contains("the commit of another notification"),
        "{text}"
    );
    server.set("synchronous_standby_names", "''").await;
    slow.abort();
}
