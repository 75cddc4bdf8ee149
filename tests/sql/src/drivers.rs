//! The files of `examples/fences`, as services copy them: one for each driver.

#[path = "../../../examples/fences/rusqlite.rs"]
pub mod rusqlite;
#[path = "../../../examples/fences/sqlx_mysql.rs"]
pub mod sqlx_mysql;
#[path = "../../../examples/fences/sqlx_postgres.rs"]
pub mod sqlx_postgres;
#[path = "../../../examples/fences/sqlx_sqlite.rs"]
pub mod sqlx_sqlite;
#[path = "../../../examples/fences/tokio_postgres.rs"]
pub mod tokio_postgres;
