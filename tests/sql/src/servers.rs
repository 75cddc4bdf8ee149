//! Databases for one test, of the system's packages.

use std::fs;

use rlock_testkit::{
    LeashedChild, Pooler, PostgresServer,
    package::{Directory, give_to_server_user},
};

use crate::session::{Database, UNPREPARED};

/// A database for one test: a server on a free loopback port, or a file. It goes when it is dropped, or when the test
/// process dies.
#[derive(Debug)]
pub struct Server {
    /// How clients reach it.
    pub url: String,
    runs: Runs,
}

/// The process and the directory of a database. The directory is removed after the process has ended.
#[derive(Debug)]
enum Runs {
    Postgres(PostgresServer),
    MariaDb {
        _child: LeashedChild,
        _directory: Directory,
    },
    Sqlite {
        _directory: Directory,
    },
}

impl Server {
    /// Starts an empty database.
    #[must_use = "it goes when it is dropped"]
    pub fn start(database: Database) -> Self {
        match database {
            Database::Postgres => {
                let server = PostgresServer::start();
                let (url, runs) = (server.url(), Runs::Postgres(server));
                Self { url, runs }
            }
            Database::MariaDb | Database::MySql => Self::mariadb(),
            Database::Sqlite => {
                let directory = Directory::new();
                let url = directory.path().join("file.db").display().to_string();
                let runs = Runs::Sqlite {
                    _directory: directory,
                };
                Self { url, runs }
            }
        }
    }

    fn mariadb() -> Self {
        let directory = Directory::new();
        let data = directory.path().join("data");
        for path in [&data, &data.join("test")] {
            fs::create_dir(path).expect("the directory is writable");
            give_to_server_user(path);
        }
        let (port, child) = directory.launch("ready for connections", |port| {
            let mut mariadbd = directory.command("mariadbd");
            // Without tables of its own, the server lets any user in.
            mariadbd.args(["--no-defaults", "--skip-grant-tables"]);
            mariadbd.args([
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-stats-persistent=0",
            ]);
            mariadbd.arg(format!("--datadir={}", data.display()));
            mariadbd.arg("--socket=../socket");
            mariadbd.args(["--bind-address=127.0.0.1", &format!("--port={port}")]);
            mariadbd
        });
        Self {
            url: format!("mysql://root@127.0.0.1:{port}/test"),
            runs: Runs::MariaDb {
                _child: child,
                _directory: directory,
            },
        }
    }

    /// Starts a pooler in front of this Postgres, which gives each transaction a session in turn. Returns it with its URL.
    #[must_use = "it ends when it is dropped"]
    pub fn pooler(&self) -> (Pooler, String) {
        let Runs::Postgres(server) = &self.runs else {
            panic!("there is a pooler of Postgres only")
        };
        let pooler = Pooler::of_transactions_that_ignores(server, "extra_float_digits");
        let url = pooler.url() + UNPREPARED;
        (pooler, url)
    }
}
