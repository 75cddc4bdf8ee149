//! Tests the guard statement of each database: which tokens it accepts, and what it returns.

use rlock_core::{Token, fencing::Fence};
use rlock_sql::{
    Server,
    session::{
        Database::{self, MariaDb, MySql, Postgres, Sqlite},
        Failure, Session, Value,
    },
};

fn fence(key: &str, token: u64) -> Fence {
    Fence::new(key, Token::try_from(token).expect("a token")).expect("valid")
}

async fn open(server: &Server, database: Database) -> Session {
    let mut session = Session::open(database, &server.url).await;
    session.create_tables().await;
    session
}

async fn the_guard_compares_tokens_of_equal_keys_only(database: Database) {
    let server = Server::start(database);
    let mut session = open(&server, database).await;
    // The table may be there.
    session.create_tables().await;

    let ends_with = |end| "k".repeat(1_023) + end;
    let (long, other) = (ends_with("a"), ends_with("b"));
    let keys = [
        "order:a",
        "order:A",
        "order:a ",
        " order:a",
        "order:ä",
        "order:a\u{308}",
        "order:ß",
        "order:ss",
        "order:🦀",
        "order:a%",
        "order:a\\",
        "order:a'",
        &long,
        &other,
    ];
    for (key, token) in keys.iter().zip((10..1_000).rev()) {
        let checked = session.try_guard(&fence(key, token)).await;
        assert!(
            checked.is_ok(),
            "{key:?} has a token of its own: {checked:?}"
        );
    }
    for (key, token) in keys.iter().zip((10..1_000).rev()) {
        // Of a nested call, and of a later hold.
        for passes in [token, token, token + 5] {
            let checked = session.try_guard(&fence(key, passes)).await;
            assert!(checked.is_ok(), "{key:?}: {checked:?}");
        }
        for late in [1, token, token + 4] {
            let checked = session.try_guard(&fence(key, late)).await;
            let Err(Failure::Stale(stale)) = checked else {
                panic!("{key:?}: {checked:?}")
            };
            let newer = matches!(database, MariaDb | MySql).then_some(token + 5);
            assert_eq!(
                (
                    stale.key(),
                    stale.token().as_u64(),
                    stale.newer_token().map(Token::as_u64)
                ),
                (*key, late, newer)
            );
        }
    }
    let last = (1 << 53) - 1;
    assert!(session.try_guard(&fence("order:a", last)).await.is_ok());
    assert!(
        session
            .try_guard(&fence("order:a", last - 1))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn postgres_compares_tokens_of_equal_keys_only() {
    the_guard_compares_tokens_of_equal_keys_only(Postgres).await;
}

#[tokio::test]
async fn sqlite_compares_tokens_of_equal_keys_only() {
    the_guard_compares_tokens_of_equal_keys_only(Sqlite).await;
}

#[tokio::test]
#[ignore = "scripts/test-all sql"]
async fn mariadb_compares_tokens_of_equal_keys_only() {
    the_guard_compares_tokens_of_equal_keys_only(MariaDb).await;
    the_guard_compares_tokens_of_equal_keys_only(MySql).await;
}

#[tokio::test]
async fn a_guard_that_is_rolled_back_leaves_the_older_token() {
    for database in [Postgres, Sqlite] {
        let server = Server::start(database);
        let mut session = open(&server, database).await;
        session.begin(database.modes()[0]).await.expect("it begins");
        session
            .guard(&fence("order:a", 7))
            .await
            .expect("it passes");
        session.roll_back().await;
        assert!(session.try_guard(&fence("order:a", 5)).await.is_ok());
    }
}

#[tokio::test]
async fn postgres_updates_the_row_of_a_key_without_touching_its_index() {
    let server = Server::start(Postgres);
    let mut session = open(&server, Postgres).await;
    for token in 1..=200 {
        session
            .try_guard(&fence("order:a", token))
            .await
            .expect("it passes");
    }
    // The server counts at the end of a session.
    drop(session);
    let mut session = open(&server, Postgres).await;
    let select = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = ? AND n_tup_upd > 0";
    let counted = async {
        loop {
            let rows = session
                .query(select, &[Value::Text("rlock_fence")])
                .await
                .expect("the statistics");
            if let Some(row) = rows.into_iter().next() {
                return row;
            }
        }
    };
    let patience = std::time::Duration::from_mins(1);
    let counted = rlock_testkit::within(patience, "the updates are counted", counted).await;
    assert_eq!(counted, [199, 199], "updates, and those that are HOT");
}
