//! A holder that is paused in an open transaction keeps the row of its key, so its successor waits.

use std::time::Duration;

use rlock_sql::{
    Server,
    rounds::{Case, Pair, Point, line},
    session::Database::{self, MariaDb, Postgres},
};
use rlock_testkit::RedisServer;

use crate::place;

const CASE: Case = Case {
    mode: "READ COMMITTED",
    is_guarded: true,
    point: Point::BeforeWrite,
    is_known: true,
};

async fn pair(redis: &RedisServer, server: &Server, database: Database, setups: [&str; 2]) -> Pair {
    let place = place(redis, database, server, &server.url);
    Pair::start(&place, Duration::from_millis(150), setups).await
}

async fn the_successor_writes_once_the_database_ends_the_idle_session(
    database: Database,
    setup: &str,
) {
    let (redis, server) = (RedisServer::start(), Server::start(database));
    let mut pair = pair(&redis, &server, database, [setup, ""]).await;
    let key = pair.pause_older(CASE).await;
    assert_eq!(line(&mut pair.newer).await, "committed");
    pair.older.resume();
    let end = line(&mut pair.older).await;
    assert!(end.starts_with("failed: "), "{end}");
    let tally = pair.check(&key).await;
    assert_eq!((tally.bad(), tally.commits), (0, 1), "{tally:?}");
}

#[tokio::test]
async fn postgres_lets_the_successor_write_once_it_ends_the_idle_session() {
    let setup = "SET idle_in_transaction_session_timeout = '100ms'";
    the_successor_writes_once_the_database_ends_the_idle_session(Postgres, setup).await;
}

#[tokio::test]
#[ignore = "scripts/test-all sql"]
async fn mariadb_lets_the_successor_write_once_it_ends_the_idle_session() {
    let setup = "SET SESSION idle_write_transaction_timeout = 1";
    the_successor_writes_once_the_database_ends_the_idle_session(MariaDb, setup).await;
}

#[tokio::test]
async fn a_successor_waits_for_a_paused_transaction_until_its_own_limit() {
    let (redis, server) = (RedisServer::start(), Server::start(Postgres));
    let mut pair = pair(
        &redis,
        &server,
        Postgres,
        ["", "SET lock_timeout = '100ms'"],
    )
    .await;
    pair.pause_older(CASE).await;
    let end = line(&mut pair.newer).await;
    assert!(end.starts_with("failed: 55P03"), "{end}");
    pair.older.resume();
    assert_eq!(line(&mut pair.older).await, "committed");
}
