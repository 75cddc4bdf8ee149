//! Tests the files of `examples/fences` that the rounds do not use: tokio-postgres and rusqlite.

use std::error::Error;

use rlock_core::fencing::{Fence, postgres, sqlite};
use rlock_sql::{
    Server,
    drivers::{rusqlite as for_rusqlite, tokio_postgres as for_tokio_postgres},
    session::Database::{Postgres, Sqlite},
};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio_postgres::{Client, IsolationLevel, NoTls};

fn fence(token: u64) -> Fence {
    Fence::new("order:42", token.try_into().expect("a token")).expect("valid")
}

async fn connect(server: &Server) -> Client {
    let connected = tokio_postgres::connect(&server.url, NoTls).await;
    let (client, connection) = connected.expect("the server is up");
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn tokio_postgres_refuses_a_stale_transaction_and_rolls_it_back() {
    use for_tokio_postgres::{FenceGuard, TransactionError};
    let server = Server::start(Postgres);
    let mut client = connect(&server).await;
    let tables = [postgres::TABLE, "CREATE TABLE paid (cents bigint)"].join("; ");
    client.batch_execute(&tables).await.expect("the tables");
    let mut pay = async |token| {
        let tx = client.transaction().await?;
        let tx = fence(token).guard(tx).await?;
        tx.execute("INSERT INTO paid VALUES ($1)", &[&1_i64])
            .await?;
        tx.commit().await?;
        Ok::<_, TransactionError>(())
    };
    for token in [5, 5, 7] {
        pay(token).await.expect("no later token");
    }
    let refused = pay(6).await.expect_err("a later token");
    assert!(
        matches!(&refused, TransactionError::Stale(stale) if *stale == fence(6).check(None).unwrap_err())
    );
    assert!(!refused.is_retryable() && refused.to_string().contains("stale"));
    let rows = client.query_one("SELECT count(*) FROM paid", &[]).await;
    assert_eq!(rows.expect("a number").get::<_, i64>(0), 3);
}

#[tokio::test]
async fn tokio_postgres_asks_to_repeat_a_transaction_after_a_serialization_failure_only() {
    use for_tokio_postgres::FenceGuard;
    let server = Server::start(Postgres);
    let (mut one, mut other) = (connect(&server).await, connect(&server).await);
    one.batch_execute(postgres::TABLE).await.expect("the table");
    let late = other
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead);
    let late = late.start().await.expect("it begins");
    // Fixes the snapshot.
    late.batch_execute("SELECT 1").await.expect("a row");
    let tx = one.transaction().await.expect("it begins");
    let tx = fence(5).guard(tx).await.expect("the first");
    tx.commit().await.expect("it commits");
    let error = fence(6)
        .guard(late)
        .await
        .map(drop)
        .expect_err("another snapshot");
    assert!(error.is_retryable(), "{error}");

    let tx = one.transaction().await.expect("it begins");
    let _tx = fence(6).guard(tx).await.expect("a later one");
    let limit = other.batch_execute("SET lock_timeout = '100ms'").await;
    limit.expect("a setting");
    let tx = other.transaction().await.expect("it begins");
    let error = fence(7)
        .guard(tx)
        .await
        .map(drop)
        .expect_err("the row is locked");
    assert!(!error.is_retryable(), "{error}");
    let code = error.source().map(ToString::to_string);
    assert!(code.is_some_and(|text| text.contains("lock timeout")));
}

fn open(server: &Server) -> Connection {
    Connection::open(&server.url).expect("the file opens")
}

fn begin(connection: &mut Connection, behavior: TransactionBehavior) -> Transaction<'_> {
    let tx = connection.transaction_with_behavior(behavior);
    tx.expect("it begins")
}

#[test]
fn rusqlite_refuses_a_stale_transaction_and_rolls_it_back() {
    use for_rusqlite::{FenceGuard, TransactionError};
    let server = Server::start(Sqlite);
    let mut connection = open(&server);
    let tables = [sqlite::TABLE, "CREATE TABLE paid (cents integer)"].join("; ");
    connection.execute_batch(&tables).expect("the tables");
    let mut pay = |token| {
        let tx = fence(token).guard(begin(&mut connection, TransactionBehavior::Immediate))?;
        tx.execute("INSERT INTO paid VALUES (1)", [])?;
        tx.commit()?;
        Ok::<_, TransactionError>(())
    };
    for token in [5, 5, 7] {
        pay(token).expect("no later token");
    }
    let refused = pay(6).expect_err("a later token");
    assert!(matches!(refused, TransactionError::Stale(_)), "{refused}");
    assert!(!refused.is_retryable());
    let rows = connection.query_row("SELECT count(*) FROM paid", [], |row| row.get(0));
    assert_eq!(rows, Ok(3));
}

#[test]
fn rusqlite_asks_to_repeat_a_transaction_while_another_one_has_the_file() {
    use for_rusqlite::FenceGuard;
    let server = Server::start(Sqlite);
    let (mut one, mut other) = (open(&server), open(&server));
    one.execute_batch(sqlite::TABLE).expect("the table");
    let tx = fence(5).guard(begin(&mut one, TransactionBehavior::Immediate));
    let tx = tx.expect("the first");
    let no_wait = other.busy_timeout(std::time::Duration::ZERO);
    no_wait.expect("a setting");
    let late = begin(&mut other, TransactionBehavior::Deferred);
    let error = fence(6).guard(late).expect_err("the file is locked");
    assert!(error.is_retryable(), "{error}");
    tx.commit().expect("it commits");
    let late = begin(&mut other, TransactionBehavior::Deferred);
    assert!(fence(6).guard(late).is_ok());
}
