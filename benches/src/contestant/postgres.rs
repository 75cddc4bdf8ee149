//! Floors and peers in Postgres, each by the statements that it sends. Peers have a session for each task, as a pool gives them
//! one, but no pool.

use std::time::Duration;

use anyhow::Result;
use rlock_core::LockClient;
use tokio_postgres::{Client, NoTls, Statement};

use super::{BoxFuture, Contestant, Inside, Seat, inside};

/// The pause of a lease row between two attempts.
const POLL: Duration = Duration::from_millis(250);

/// The statements of a lock. The key is their parameter.
pub(super) struct Ways {
    /// What makes sure that there is a row to lock.
    prepare: &'static str,
    /// Before each attempt, without a parameter.
    begin: &'static [&'static str],
    /// Returns a row if the session has the lock.
    take: &'static str,
    /// After each attempt, without a parameter.
    end: &'static [&'static str],
    give_back: &'static str,
}

const ADVISORY: &str = "SELECT pg_advisory_lock(hashtextextended($1, 0))";
const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended($1, 0))";

/// The same writes as those of this framework, in its tables, committed as it commits them.
pub(super) const FLOOR: Ways = Ways {
    prepare: "INSERT INTO rlock.lock (key, kept_until) VALUES ($1, 'infinity') ON CONFLICT DO NOTHING",
    begin: &[],
    take: "WITH fenced AS (UPDATE rlock.lock SET fence = fence + 1 WHERE key = $1 RETURNING fence)
           INSERT INTO rlock.holder (key, owner, expires_at)
           SELECT $1, 'floor', clock_timestamp() + interval '30 s' FROM fenced
           ON CONFLICT DO NOTHING RETURNING (SELECT fence FROM fenced)",
    end: &[],
    give_back:
        "WITH gone AS (DELETE FROM rlock.holder WHERE key = $1 AND owner = 'floor' RETURNING key)
                SELECT set_config('synchronous_commit', 'off', true) FROM gone",
};

/// `PgAdvisoryLock` of sqlx 0.9.
pub(super) const SQLX: Ways = Ways {
    prepare: "SELECT $1::text",
    begin: &[],
    take: ADVISORY,
    end: &[],
    give_back: UNLOCK,
};

/// distributed-lock-postgres 0.2, which waits with a time-out of the transaction.
pub(super) const DISTRIBUTED_LOCK: Ways = Ways {
    prepare: "SELECT $1::text",
    begin: &["BEGIN", "SAVEPOINT acquire", "SET LOCAL lock_timeout = 0"],
    take: ADVISORY,
    end: &["COMMIT"],
    give_back: UNLOCK,
};

/// A row with a lease, which each waiter polls.
pub(super) const LEASE_ROW: Ways = Ways {
    prepare: "SELECT $1::text",
    begin: &[],
    take: "INSERT INTO lease VALUES ($1, pg_backend_pid(), clock_timestamp() + interval '30 s')
           ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
           WHERE lease.expires_at < clock_timestamp() RETURNING key",
    end: &[],
    give_back: "DELETE FROM lease WHERE key = $1 AND owner = pg_backend_pid()",
};

pub(super) struct Postgres {
    url: String,
    ways: Ways,
}

impl Postgres {
    pub(super) async fn connect(url: &str, ways: Ways) -> Result<Self> {
        // Creates the tables that the floor uses.
        drop(LockClient::connect(url).await?);
        Ok(Self {
            url: url.to_owned(),
            ways,
        })
    }
}

impl Contestant for Postgres {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let (key, ways) = (key.to_owned(), &self.ways);
        Box::pin(async move {
            let (session, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
            tokio::spawn(connection);
            let settings = "SET synchronous_commit = on; SET plan_cache_mode = force_generic_plan;
                SELECT pg_advisory_lock(0);
                CREATE TABLE IF NOT EXISTS lease (key text PRIMARY KEY, owner integer, expires_at timestamptz);
                SELECT pg_advisory_unlock(0)";
            session.batch_execute(settings).await?;
            let key = format!("floor:{key}");
            session.execute(ways.prepare, &[&key]).await?;
            Ok(Box::new(PostgresSeat {
                take: session.prepare(ways.take).await?,
                give_back: session.prepare(ways.give_back).await?,
                begin: ways.begin,
                end: ways.end,
                session,
                key,
            }) as Box<dyn Seat>)
        })
    }
}

struct PostgresSeat {
    session: Client,
    key: String,
    begin: &'static [&'static str],
    take: Statement,
    end: &'static [&'static str],
    give_back: Statement,
}

impl Seat for PostgresSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            loop {
                for statement in self.begin {
                    self.session.batch_execute(statement).await?;
                }
                let taken = self.session.query_opt(&self.take, &[&self.key]).await?;
                for statement in self.end {
                    self.session.batch_execute(statement).await?;
                }
                if taken.is_some() {
                    break;
                }
                tokio::time::sleep(POLL).await;
            }
            let inside = inside(stay);
            self.session.query(&self.give_back, &[&self.key]).await?;
            Ok(inside)
        })
    }
}
