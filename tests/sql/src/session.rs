//! A connection to a database of any kind, and the transaction that the tests are about.

use std::{fmt, str::FromStr, time::Duration};

use rlock_core::fencing::{Fence, Stale, mariadb, mysql, postgres, sqlite};
use rusqlite::{ErrorCode, params_from_iter};
use sqlx::{
    AnyConnection, AssertSqlSafe, Column as _, Connection as _, Row as _,
    any::install_default_drivers, error::DatabaseError, mysql::MySqlDatabaseError,
};

/// A database, and the form of its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// [`postgres`].
    Postgres,
    /// [`mariadb`].
    MariaDb,
    /// [`mysql`], on MariaDB.
    MySql,
    /// [`sqlite`].
    Sqlite,
}

use Database::{MariaDb, MySql, Postgres, Sqlite};

impl Database {
    /// All of them.
    pub const ALL: [Self; 4] = [Postgres, MariaDb, MySql, Sqlite];

    /// How a transaction can begin: at an isolation level, or in a mode of SQLite.
    #[must_use]
    pub fn modes(self) -> &'static [&'static str] {
        match self {
            Sqlite => &["IMMEDIATE", "DEFERRED"],
            _ => &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"],
        }
    }

    fn fence_table(self) -> &'static str {
        match self {
            Postgres => postgres::TABLE,
            MariaDb => mariadb::TABLE,
            MySql => mysql::TABLE,
            Sqlite => sqlite::TABLE,
        }
    }

    fn tables(self) -> [String; 2] {
        let (key, id) = match self {
            Postgres => ("text", "bigserial PRIMARY KEY"),
            Sqlite => ("text", "integer PRIMARY KEY"),
            _ => ("varbinary(1024)", "bigint PRIMARY KEY AUTO_INCREMENT"),
        };
        [
            format!(
                "CREATE TABLE IF NOT EXISTS account (name {key} PRIMARY KEY, amount bigint, writer bigint)"
            ),
            format!(
                "CREATE TABLE IF NOT EXISTS journal (id {id}, name {key}, seen bigint, token bigint)"
            ),
        ]
    }
}

impl FromStr for Database {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL
            .into_iter()
            .find(|database| format!("{database:?}") == name);
        found.ok_or_else(|| name.to_owned())
    }
}

/// Why a transaction did not commit.
#[derive(Debug)]
pub enum Failure {
    /// The guard refused the fence.
    Stale(Stale),
    /// The database asks to run the transaction again.
    Again(String),
    /// Anything else.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => write!(f, "{stale}"),
            Self::Again(error) | Self::Other(error) => f.write_str(error),
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        let database = error.as_database_error();
        let code = database.and_then(DatabaseError::code).unwrap_or_default();
        let number = database.and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
        let number = number.map(MySqlDatabaseError::number);
        let text = format!("{code} {error}");
        // A serialization failure or a deadlock, a deadlock of Postgres; on MariaDB a wait for a row that took too long, or a
        // row that has changed under snapshot isolation.
        if matches!(&*code, "40001" | "40P01") || matches!(number, Some(1020 | 1205)) {
            return Self::Again(text);
        }
        Self::Other(text)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy) => Self::Again(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A key.
    Text(&'a str),
    /// A token or an amount.
    Int(i64),
}

use Value::{Int, Text};

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Text(text) => text.to_sql(),
            Int(int) => int.to_sql(),
        }
    }
}

/// Ends the URL of a database whose connections keep no statements.
pub(crate) const UNPREPARED: &str = "?statement-cache-capacity=0";

enum Driver {
    Server(AnyConnection),
    File(rusqlite::Connection),
}

/// A connection to a database. All columns that the tests read are integers.
pub struct Session {
    database: Database,
    driver: Driver,
    /// Whether statements stay prepared beyond their transaction, which `PgBouncer` 1.18 breaks.
    prepares: bool,
}

impl Session {
    /// Connects to a server by its URL, or opens a file of SQLite.
    pub async fn open(database: Database, url: &str) -> Self {
        let driver = if database == Sqlite {
            let file = rusqlite::Connection::open(url).expect("the file opens");
            file.busy_timeout(Duration::from_mins(1))
                .expect("a timeout");
            file.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")
                .expect("the file is writable");
            Driver::File(file)
        } else {
            install_default_drivers();
            let connected = AnyConnection::connect(url).await;
            Driver::Server(connected.unwrap_or_else(|error| panic!("{url}: {error}")))
        };
        let prepares = !url.contains(UNPREPARED);
        Self {
            database,
            driver,
            prepares,
        }
    }

    /// Creates the tables of the guard and the application.
    pub async fn create_tables(&mut self) {
        self.query(self.database.fence_table(), &[])
            .await
            .expect("the table of the guard");
        for table in self.database.tables() {
            self.query(&table, &[]).await.expect("a table");
        }
    }

    /// Runs a statement with the parameters `?`, and returns its rows.
    pub async fn query(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Vec<i64>>, Failure> {
        match &mut self.driver {
            Driver::File(file) => {
                let mut statement = file.prepare_cached(statement)?;
                let columns = statement.column_count();
                let rows = statement.query_map(params_from_iter(values), |row| {
                    (0..columns).map(|column| row.get(column)).collect()
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            }
            Driver::Server(connection) => {
                let mut text = statement.to_owned();
                if self.database == Postgres {
                    for number in 1..=values.len() {
                        text = text.replacen('?', &format!("${number}"), 1);
                    }
                }
                if values.is_empty() {
                    // Not prepared: the statements that begin and end a transaction need not be.
                    sqlx::raw_sql(AssertSqlSafe(text))
                        .execute(&mut *connection)
                        .await?;
                    return Ok(Vec::new());
                }
                let mut query = sqlx::query(AssertSqlSafe(text)).persistent(self.prepares);
                for value in values {
                    query = match *value {
                        Text(text) => query.bind(text.to_owned()),
                        Int(int) => query.bind(int),
                    };
                }
                let rows = query.fetch_all(&mut *connection).await?;
                let integers = |row: &sqlx::any::AnyRow| {
                    let columns = row.columns().iter();
                    columns
                        .map(|column| row.try_get(column.ordinal()))
                        .collect()
                };
                Ok(rows.iter().map(integers).collect::<Result<_, _>>()?)
            }
        }
    }

    /// Begins a transaction in a mode of [`Database::modes`].
    pub async fn begin(&mut self, mode: &str) -> Result<(), Failure> {
        let begin = match self.database {
            Postgres => format!("BEGIN ISOLATION LEVEL {mode}"),
            Sqlite => format!("BEGIN {mode}"),
            MariaDb | MySql => {
                let level = format!("SET TRANSACTION ISOLATION LEVEL {mode}");
                self.query(&level, &[]).await?;
                "BEGIN".to_owned()
            }
        };
        self.query(&begin, &[]).await.map(drop)
    }

    /// Commits the transaction.
    pub async fn commit(&mut self) -> Result<(), Failure> {
        self.query("COMMIT", &[]).await.map(drop)
    }

    /// Rolls the transaction back, if one is open.
    pub async fn roll_back(&mut self) {
        let _ = self.query("ROLLBACK", &[]).await;
    }

    /// Runs the guard.
    pub async fn guard(&mut self, fence: &Fence) -> Result<(), Failure> {
        let key = Text(fence.key());
        let values = [key, Int(fence.token().as_i64())];
        let returned = match self.database {
            Postgres => self.query(postgres::GUARD, &values).await?,
            MariaDb => self.query(mariadb::GUARD, &values).await?,
            Sqlite => self.query(sqlite::GUARD, &values).await?,
            MySql => {
                self.query(mysql::GUARD, &values).await?;
                self.query(mysql::TOKEN, &[key]).await?
            }
        };
        let token = returned.first().map(|row| row[0]);
        fence.check(token).map_err(Failure::Stale)
    }

    /// Runs the guard in a transaction of its own, which it commits unless the fence is stale.
    pub async fn try_guard(&mut self, fence: &Fence) -> Result<(), Failure> {
        self.begin(self.database.modes()[0]).await?;
        let checked = self.guard(fence).await;
        match &checked {
            Ok(()) => self.commit().await?,
            Err(_) => self.roll_back().await,
        }
        checked
    }

    /// Opens an account of this name, with nothing in it.
    pub async fn open_account(&mut self, name: &str) {
        let insert = "INSERT INTO account (name, amount, writer) VALUES (?, 0, 0)";
        self.query(insert, &[Text(name)])
            .await
            .expect("the name is new");
    }

    /// Reads an account's amount and the token of its last writer.
    pub async fn read(&mut self, name: &str) -> Result<(i64, i64), Failure> {
        let select = "SELECT amount, writer FROM account WHERE name = ?";
        let rows = self.query(select, &[Text(name)]).await?;
        Ok((rows[0][0], rows[0][1]))
    }

    /// Writes what the transaction makes of what it read, and notes it in the journal.
    pub async fn write(
        &mut self,
        fence: &Fence,
        (amount, writer): (i64, i64),
    ) -> Result<(), Failure> {
        let (name, token) = (Text(fence.key()), Int(fence.token().as_i64()));
        let update = "UPDATE account SET amount = ?, writer = ? WHERE name = ?";
        self.query(update, &[Int(amount + 1), token, name]).await?;
        let insert = "INSERT INTO journal (name, seen, token) VALUES (?, ?, ?)";
        self.query(insert, &[name, Int(writer), token]).await?;
        Ok(())
    }

    /// Reads the journal of an account: the token that each commit saw, and its own, in the order of the writes.
    pub async fn journal(&mut self, name: &str) -> Vec<(i64, i64)> {
        let select = "SELECT seen, token FROM journal WHERE name = ? ORDER BY id";
        let rows = self.query(select, &[Text(name)]).await.expect("a journal");
        rows.into_iter().map(|row| (row[0], row[1])).collect()
    }

    /// Returns the number by which [`waits`](Self::waits) knows this connection. Its own name on Postgres, which `PgBouncer`
    /// passes on with each transaction.
    pub async fn identity(&mut self) -> i64 {
        match self.database {
            MariaDb | MySql => {
                let select = "SELECT CAST(CONNECTION_ID() AS SIGNED) FROM (SELECT ? AS one) AS one";
                self.query(select, &[Int(1)]).await.expect("a number")[0][0]
            }
            Postgres => {
                let name = i64::from(std::process::id());
                let set = format!("SET application_name = 'worker {name}'");
                self.query(&set, &[]).await.expect("a name");
                name
            }
            Sqlite => 0,
        }
    }

    /// Returns whether the connection of this identity waits for a row that another transaction has.
    pub async fn waits(&mut self, identity: i64) -> bool {
        match (self.database, &mut self.driver) {
            (Postgres, _) => {
                let name = format!("worker {identity}");
                let select = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ? AND wait_event = 'transactionid'";
                self.query(select, &[Text(&name)]).await.expect("a number")[0][0] > 0
            }
            // `information_schema.innodb_trx` shows an old state to those who look often.
            (_, Driver::Server(connection)) => {
                let status = sqlx::query("SHOW ENGINE INNODB STATUS")
                    .fetch_one(connection)
                    .await;
                let text: String = status.expect("a status").get(2);
                let thread = format!("MariaDB thread id {identity},");
                let mut transactions = text.split("---TRANSACTION ");
                transactions.any(|part| part.contains(&thread) && part.contains("\nLOCK WAIT "))
            }
            (_, Driver::File(_)) => unreachable!("the rounds know when SQLite waits"),
        }
    }
}
