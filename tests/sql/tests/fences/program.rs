//! A program with a fenced transaction, as the page on transactions describes it: a payment that comes late writes nothing.

use rlock_core::{LockClient, distributed_lock, fencing::Fence};
use rlock_sql::{
    Server,
    drivers::sqlx_sqlite::{FenceGuard, TransactionError},
    session::Database::Sqlite,
};
use sqlx::SqlitePool;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Pays an order. Returns what is paid in all.
#[distributed_lock(key = "order:<id>", guard = lock)]
async fn pay(pool: &SqlitePool, id: i64, cents: i64) -> Result<i64, Error> {
    Ok(transaction(pool, &lock.fence(), id, cents).await?)
}

async fn transaction(
    pool: &SqlitePool,
    fence: &Fence,
    id: i64,
    cents: i64,
) -> Result<i64, TransactionError> {
    let mut tx = fence
        .guard(pool.begin_with("BEGIN IMMEDIATE").await?)
        .await?;
    let update = "UPDATE orders SET paid = paid + ? WHERE id = ? RETURNING paid";
    let update = sqlx::query_scalar(update).bind(cents).bind(id);
    let paid = update.fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(paid)
}

#[tokio::test]
async fn a_payment_that_comes_after_a_later_one_writes_nothing() -> Result<(), Error> {
    let database = Server::start(Sqlite);
    let pool = SqlitePool::connect(&format!("sqlite:{}?mode=rwc", database.url)).await?;
    for statement in [
        rlock_core::fencing::sqlite::TABLE,
        "CREATE TABLE orders (id integer PRIMARY KEY, paid integer NOT NULL)",
        "INSERT INTO orders VALUES (42, 0)",
    ] {
        sqlx::raw_sql(statement).execute(&pool).await?;
    }
    let client = LockClient::in_memory();
    assert_eq!(client.scope(pay(&pool, 42, 100)).await?, 100);

    // This holder is paused for so long that it loses the lock, and then goes on.
    let late = client.lock("order:42").acquire().await?;
    assert!(client.force_release("order:42").await?);
    assert_eq!(client.scope(pay(&pool, 42, 200)).await?, 300);
    let refused = transaction(&pool, &late.fence(), 42, 400).await;
    assert!(
        matches!(refused, Err(TransactionError::Stale(_))),
        "{refused:?}"
    );
    assert_eq!(client.scope(pay(&pool, 42, 1)).await?, 301);
    Ok(())
}
