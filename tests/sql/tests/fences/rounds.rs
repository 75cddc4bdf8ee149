//! Races stale and fresh writers against each database, in random rounds.

use rlock_sql::{
    Server,
    rounds::{Case, Tally, run},
    session::Database::{self, MariaDb, MySql, Postgres, Sqlite},
};
use rlock_testkit::RedisServer;

use crate::place;

/// Runs the cases of a database on four pairs of processes.
async fn rounds(database: Database, cases: Vec<Case>) -> Tally {
    let (redis, server) = (RedisServer::start(), Server::start(database));
    run(&place(&redis, database, &server, &server.url), cases, 4).await
}

async fn with_the_guard_no_write_is_stale_or_lost(database: Database, times: usize) {
    let cases = Case::all(database, true).repeat(times);
    let tally = rounds(database, cases).await;
    assert_eq!(tally.bad(), 0, "{tally:?}");
    // In some rounds the successor comes first, in others it waits.
    assert!((1..tally.stops).contains(&tally.overtaken), "{tally:?}");
}

async fn without_the_guard_some_writes_are(database: Database) {
    let cases = Case::all(database, false);
    let tally = rounds(database, cases).await;
    assert!(tally.bad() > 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_refuses_each_stale_write_and_no_other() {
    with_the_guard_no_write_is_stale_or_lost(Sqlite, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_takes_stale_writes_without_the_guard() {
    without_the_guard_some_writes_are(Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_refuses_each_stale_write_and_no_other() {
    with_the_guard_no_write_is_stale_or_lost(Postgres, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_takes_stale_writes_without_the_guard() {
    without_the_guard_some_writes_are(Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "scripts/test-all sql"]
async fn mariadb_refuses_each_stale_write_and_no_other() {
    with_the_guard_no_write_is_stale_or_lost(MariaDb, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "scripts/test-all sql"]
async fn the_guard_for_mysql_refuses_each_stale_write_and_no_other() {
    with_the_guard_no_write_is_stale_or_lost(MySql, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "scripts/test-all sql"]
async fn mariadb_takes_stale_writes_without_the_guard() {
    without_the_guard_some_writes_are(MariaDb).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "scripts/test-all sql"]
async fn hundreds_of_rounds_find_no_stale_write_in_postgres_and_sqlite() {
    with_the_guard_no_write_is_stale_or_lost(Postgres, 10).await;
    with_the_guard_no_write_is_stale_or_lost(Sqlite, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "scripts/test-all sql"]
async fn behind_pgbouncer_no_write_is_stale_or_lost() {
    let (redis, server) = (RedisServer::start(), Server::start(Postgres));
    let (_pooler, url) = server.pooler();
    let cases = Case::all(Postgres, true).repeat(5);
    let place = place(&redis, Postgres, &server, &url);
    let tally = run(&place, cases, 4).await;
    assert_eq!(tally.bad(), 0, "{tally:?}");
}
