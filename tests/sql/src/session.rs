//! A connection to a database of any kind, and the transaction that the tests are about.

use std::{fmt, str::FromStr, time::Duration};

use rlock_core::fencing::{Fence, Stale, mariadb, mysql, postgres, sqlite};
use sqlx::{
    AssertSqlSafe, Connection, Pool, Row as _, Transaction,
    error::DatabaseError,
    pool::{PoolConnection, PoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use crate::drivers::{sqlx_mysql, sqlx_postgres, sqlx_sqlite};

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

/// Makes a failure of the error of a driver's file.
macro_rules! failure {
    ($module:ident) => {
        impl From<$module::TransactionError> for Failure {
            fn from(error: $module::TransactionError) -> Self {
                let is_retryable = error.is_retryable();
                match error {
                    $module::TransactionError::Stale(stale) => Self::Stale(stale),
                    $module::TransactionError::Database(error) => {
                        let code = error.as_database_error().and_then(DatabaseError::code);
                        let text = format!("{} {error}", code.unwrap_or_default());
                        if is_retryable {
                            Self::Again(text)
                        } else {
                            Self::Other(text)
                        }
                    }
                }
            }
        }
    };
}

failure!(sqlx_postgres);
failure!(sqlx_mysql);
failure!(sqlx_sqlite);

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A key.
    Text(&'a str),
    /// A token or an amount.
    Int(i64),
}

use Value::{Int, Text};

/// Ends the URL of a database whose connections keep no statements.
pub(crate) const UNPREPARED: &str = "?statement-cache-capacity=0";

/// The only connection to a database.
struct Link<DB: sqlx::Database> {
    pool: Pool<DB>,
    /// The connection, outside of the transaction.
    idle: Option<PoolConnection<DB>>,
    transaction: Option<Transaction<'static, DB>>,
}

impl<DB: sqlx::Database> Link<DB> {
    async fn open(options: <DB::Connection as Connection>::Options) -> Self {
        // So that it stays the same one.
        let pool = PoolOptions::new().max_connections(1);
        let pool = pool.max_lifetime(None).idle_timeout(None);
        let pool = pool.test_before_acquire(false);
        let connected = pool.connect_with(options).await;
        Self {
            pool: connected.expect("the database is up"),
            idle: None,
            transaction: None,
        }
    }

    /// Returns the connection.
    async fn connection(&mut self) -> sqlx::Result<&mut DB::Connection> {
        if let Some(transaction) = &mut self.transaction {
            return Ok(&mut *transaction);
        }
        let idle = match self.idle.take() {
            Some(idle) => idle,
            None => self.pool.acquire().await?,
        };
        Ok(&mut *self.idle.insert(idle))
    }

    async fn begin(&mut self, begin: String) -> sqlx::Result<()> {
        self.idle = None;
        self.transaction = Some(self.pool.begin_with(AssertSqlSafe(begin)).await?);
        Ok(())
    }

    async fn roll_back(&mut self) -> sqlx::Result<()> {
        match self.transaction.take() {
            Some(transaction) => transaction.rollback().await,
            None => Ok(()),
        }
    }

    /// Takes the transaction, to end or guard it.
    fn take(&mut self) -> Transaction<'static, DB> {
        self.transaction.take().expect("it has begun")
    }
}

enum Driver {
    Postgres(Link<sqlx::Postgres>),
    MySql(Link<sqlx::MySql>),
    Sqlite(Link<sqlx::Sqlite>),
}

/// Evaluates an expression with the link of any driver, whose error becomes a [`Failure`] as the driver's file has it.
macro_rules! with_link {
    ($driver:expr, $link:ident => $result:expr) => {
        match $driver {
            Driver::Postgres($link) => {
                $result.map_err(|error| sqlx_postgres::TransactionError::from(error).into())
            }
            Driver::MySql($link) => {
                $result.map_err(|error| sqlx_mysql::TransactionError::from(error).into())
            }
            Driver::Sqlite($link) => {
                $result.map_err(|error| sqlx_sqlite::TransactionError::from(error).into())
            }
        }
    };
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
        let driver = match database {
            Postgres => Driver::Postgres(Link::open(url.parse().expect("a URL")).await),
            MariaDb | MySql => Driver::MySql(Link::open(url.parse().expect("a URL")).await),
            Sqlite => {
                let file = SqliteConnectOptions::new()
                    .filename(url)
                    .create_if_missing(true)
                    .busy_timeout(Duration::from_mins(1))
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Off);
                Driver::Sqlite(Link::open(file).await)
            }
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
        let mut text = statement.to_owned();
        if self.database == Postgres {
            for number in 1..=values.len() {
                text = text.replacen('?', &format!("${number}"), 1);
            }
        }
        let prepares = self.prepares;
        with_link!(&mut self.driver, link => async {
            let connection = link.connection().await?;
            if values.is_empty() {
                // Not prepared: the statements that begin and end a transaction need not be.
                sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await?;
                return Ok(Vec::new());
            }
            let mut query = sqlx::query(AssertSqlSafe(text)).persistent(prepares);
            for value in values {
                query = match *value {
                    Text(text) => query.bind(text.to_owned()),
                    Int(int) => query.bind(int),
                };
            }
            let rows = query.fetch_all(connection).await?;
            let integers = rows.iter().map(|row| (0..row.len()).map(|column| row.try_get(column)).collect());
            integers.collect()
        }.await)
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
        with_link!(&mut self.driver, link => link.begin(begin).await)
    }

    /// Commits the transaction.
    pub async fn commit(&mut self) -> Result<(), Failure> {
        with_link!(&mut self.driver, link => link.take().commit().await)
    }

    /// Rolls the transaction back, unless the guard has.
    pub async fn roll_back(&mut self) {
        let rolled_back: Result<(), Failure> =
            with_link!(&mut self.driver, link => link.roll_back().await);
        // The database has, if the connection is gone.
        drop(rolled_back);
    }

    /// Runs the guard, by the file of the driver if it has the form of this database.
    pub async fn guard(&mut self, fence: &Fence) -> Result<(), Failure> {
        match (self.database, &mut self.driver) {
            (Postgres, Driver::Postgres(link)) if self.prepares => {
                let guarded = sqlx_postgres::FenceGuard::guard(fence, link.take()).await?;
                link.transaction = Some(guarded);
            }
            (MySql, Driver::MySql(link)) => {
                let guarded = sqlx_mysql::FenceGuard::guard(fence, link.take()).await?;
                link.transaction = Some(guarded);
            }
            (Sqlite, Driver::Sqlite(link)) => {
                let guarded = sqlx_sqlite::FenceGuard::guard(fence, link.take()).await?;
                link.transaction = Some(guarded);
            }
            _ => return self.guard_by_hand(fence).await,
        }
        Ok(())
    }

    /// Runs the statements of the guard.
    pub async fn guard_by_hand(&mut self, fence: &Fence) -> Result<(), Failure> {
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
            (_, Driver::MySql(link)) => {
                let connection = link.connection().await.expect("connected");
                let status = sqlx::query("SHOW ENGINE INNODB STATUS")
                    .fetch_one(connection)
                    .await;
                let text: String = status.expect("a status").get(2);
                let thread = format!("MariaDB thread id {identity},");
                let mut transactions = text.split("---TRANSACTION ");
                transactions.any(|part| part.contains(&thread) && part.contains("\nLOCK WAIT "))
            }
            _ => unreachable!("the rounds know when SQLite waits"),
        }
    }
}
