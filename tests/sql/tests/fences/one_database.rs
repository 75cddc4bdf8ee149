//! Locks, fences and data in one Postgres database.

use rlock_core::{LockClient, distributed_lock, fencing::postgres};
use rlock_sql::{
    Server,
    drivers::tokio_postgres::{FenceGuard, TransactionError},
    session::Database::Postgres,
};
use tokio_postgres::{Client, NoTls};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Pays an order. Returns what is paid in all.
#[distributed_lock(key = "order:<id>", guard = lock)]
async fn pay(database: &mut Client, id: i64, cents: i64) -> Result<i64, Error> {
    let tx = lock.fence().guard(database.transaction().await?).await?;
    let read = "SELECT paid FROM orders WHERE id = $1";
    let paid: i64 = tx.query_one(read, &[&id]).await?.get(0);
    let write = "UPDATE orders SET paid = $2 WHERE id = $1";
    tx.execute(write, &[&id, &(paid + cents)]).await?;
    tx.commit().await?;
    Ok(paid + cents)
}

async fn open(url: &str) -> Result<Client, Error> {
    let (database, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(database)
}

#[tokio::test]
async fn one_database_keeps_the_locks_the_fences_and_the_data() -> Result<(), Error> {
    let server = Server::start(Postgres);
    let mut database = open(&server.url).await?;
    database.batch_execute(postgres::TABLE).await?;
    let orders = "CREATE TABLE orders (id bigint PRIMARY KEY, paid bigint NOT NULL)";
    database.batch_execute(orders).await?;
    database
        .batch_execute("INSERT INTO orders VALUES (42, 0)")
        .await?;

    let instance = async || {
        let locks = LockClient::connect(&server.url).await?;
        let mut database = open(&server.url).await?;
        for _ in 0..5 {
            locks.scope(pay(&mut database, 42, 100)).await?;
        }
        Ok::<_, Error>(locks.shutdown().await?)
    };
    tokio::try_join!(instance(), instance(), instance(), instance())?;

    // This holder is paused for so long that it loses the lock, and then goes on.
    let locks = LockClient::connect(&server.url).await?;
    let late = locks.lock("order:42").acquire().await?;
    assert!(locks.force_release("order:42").await?);
    assert_eq!(locks.scope(pay(&mut database, 42, 1)).await?, 2_001);
    let refused = late.fence().guard(database.transaction().await?).await;
    let refused = refused.map(drop);
    assert!(
        matches!(refused, Err(TransactionError::Stale(_))),
        "{refused:?}"
    );
    Ok(locks.shutdown().await?)
}
