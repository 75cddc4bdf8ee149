//! A Postgres server whose processes, rows, time-outs and connections fail its clients.

use std::time::Duration;

use rlock_core::LockError;
use rlock_testkit::{PostgresServer, eventually};

use crate::{
    common::{LASTING, LONG, acquiring, assert_unavailable, connect, connect_with, its_turn, ms},
    topologies::{assert_soon_extended, conformance::assert_soon_queued},
};

const SESSIONS: &str =
    "SELECT pid::text, query FROM pg_stat_activity WHERE starts_with(application_name, 'rlock:')";

/// The client undoes it over its next session.
#[tokio::test]
async fn a_request_of_a_session_that_was_given_up_never_runs() {
    let server = PostgresServer::start();
    let one = connect(&server.url()).await;
    let former = server.pairs(SESSIONS).await;
    let other = connect(&server.url()).await;
    for (process, _) in &former {
        server.pause_session(process);
    }
    let lock = one.lock("k").lease(LASTING).wait(ms(1500));
    assert_unavailable(lock.acquire().await, "no reply");
    // The client has to end its former session before it uses the next one. Otherwise the request could run after its release.
    eventually(LONG, "the next session ends the former one", async || {
        let sessions = server.pairs(SESSIONS).await;
        let mut queries = sessions.iter().map(|(_, query)| query);
        queries.any(|query| query.contains("pg_terminate_backend"))
    })
    .await;
    for (process, _) in &former {
        server.resume_session(process);
    }
    let next = its_turn(acquiring(other.lock("k").lease(LASTING).wait(LONG))).await;
    let holders = server.pairs("SELECT owner, key FROM rlock.holder").await;
    assert_eq!(holders, [(next.owner(), "lock:{k}".to_owned())]);
}

/// The lease of the holder has ended in between, and only one of them gets the lock.
#[tokio::test]
async fn requests_that_waited_for_a_row_see_the_lock_as_it_is_then() {
    let server = PostgresServer::start();
    let other = connect(&server.url()).await;
    let lock = other.lock("k").lease(LASTING).watchdog(false);
    let _guard = lock.acquire().await.expect("free");
    // A request waits for a quarter of this time.
    let one = connect_with(LONG, server.url()).await.lock("k");
    let two = connect_with(LONG, server.url()).await.lock("k");
    let session = server.keep_row("lock:{k}").await;
    let ends = async {
        eventually(LONG, "both wait for the row", async || {
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            server.number(waits).await == 2
        })
        .await;
        let end = "UPDATE rlock.holder SET expires_at = clock_timestamp(); COMMIT";
        session.batch_execute(end).await.expect("it may");
    };
    let (one, two, ()) = tokio::join!(one.try_acquire(), two.try_acquire(), ends);
    let granted = [one, two].map(|attempt| attempt.expect("a reply").is_some());
    assert_eq!(granted.iter().filter(|is| **is).count(), 1);
}

/// As an administrator sets them for all sessions of a role.
#[tokio::test]
async fn time_outs_of_the_server_cost_no_lock() {
    let server = PostgresServer::start();
    drop(connect(&server.url()).await);
    let limits = "?options=-c%20statement_timeout%3D1000%20-c%20idle_session_timeout%3D300";
    let url = format!("{}{limits}", server.url());
    let (one, other) = (connect_with(LONG, &url).await, connect(&url).await);
    let lock = one.lock("k").lease(Duration::from_secs(10));
    let guard = lock.acquire().await.expect("free");
    let waiting = acquiring(other.lock("k").wait(LONG));
    assert_soon_queued(true, &one, "k", 1).await;
    // The server ends idle sessions, and cancels requests that wait for a row.
    assert_soon_extended(&guard).await;
    drop(one.lock("kept").acquire().await.expect("free"));
    let session = server.keep_row("lock:{kept}").await;
    let cancelled = one.lock("kept").wait(ms(2500)).acquire().await;
    let error = cancelled.expect_err("the row is kept");
    assert!(format!("{error:#}").contains("timeout"), "{error:#}");
    session.batch_execute("COMMIT").await.expect("it may");
    drop(one.lock("kept").acquire().await.expect("free"));
    guard.release().await.expect("held");
    drop(its_turn(waiting).await);
}

#[tokio::test]
async fn a_server_without_a_free_connection_is_waited_for() {
    let server = PostgresServer::start();
    let role = "CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app";
    server.execute(role).await;
    let client = connect(&server.url().replace("postgres@", "app@")).await;
    let lock = client.lock("k").lease(Duration::from_secs(30));
    let guard = lock.acquire().await.expect("free");
    server.execute("ALTER ROLE app CONNECTION LIMIT 0").await;
    for (process, _) in server.pairs(SESSIONS).await {
        let end = format!("SELECT pg_terminate_backend({process})");
        server.execute(&end).await;
    }
    let outcome = client.lock("other").wait(ms(500)).acquire().await;
    let said = assert_unavailable(outcome, "no session");
    assert!(said.contains("too many connections"), "{said}");
    server.execute("ALTER ROLE app CONNECTION LIMIT 2").await;
    assert_soon_extended(&guard).await;
    guard.release().await.expect("held");
}

/// As `VACUUM FULL` and most migrations do.
#[tokio::test]
async fn a_table_that_another_transaction_locks_is_waited_for() {
    let server = PostgresServer::start();
    let client = connect(&server.url()).await;
    let lock = client.lock("k").lease(LASTING);
    let guard = lock.acquire().await.expect("free");
    let session = server.session().await;
    let keep = "BEGIN; LOCK TABLE rlock.holder IN ACCESS EXCLUSIVE MODE";
    session.batch_execute(keep).await.expect("it may");
    let refused = client.lock("other").try_acquire().await;
    let error = refused.expect_err("it is kept");
    assert!(
        format!("{error:#}").contains("another transaction has locked"),
        "{error:#}"
    );
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let waiting = acquiring(client.lock("other").wait(LONG));
    session.batch_execute("COMMIT").await.expect("it may");
    drop(its_turn(waiting).await);
    guard.release().await.expect("held");
}
