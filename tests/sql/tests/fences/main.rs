//! The statements of `rlock_core::fencing`, in the databases that they are for.

mod drivers;
mod guards;
mod one_database;
mod open_transactions;
mod rounds;

use rlock_sql::{Server, rounds::Place, session::Database};
use rlock_testkit::RedisServer;

/// Names the place of a server's database, for workers that reach it by this URL.
fn place(redis: &RedisServer, database: Database, server: &Server, worker_url: &str) -> Place {
    Place {
        redis: redis.url(),
        database,
        url: server.url.clone(),
        worker_url: worker_url.to_owned(),
        program: env!("CARGO_BIN_EXE_sql_worker"),
    }
}
