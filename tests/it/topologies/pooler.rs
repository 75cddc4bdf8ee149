//! What is special about locks in Postgres behind a pooler: how the client notices it, which settings it must not leak, and who waits.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::join_all;
use rlock_core::{
    LockClient, LostCause,
    diagnose::{self, Severity},
};
use rlock_testkit::{Pooler, PostgresServer, eventually};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::postgres::{connect_to as connect, waiting_at};
use crate::common::{
    LONG, assert_lost, builder, connect_with, its_turn,
    log::{keep_log, logged_of},
    ms,
};

/// Sessions of clients that listen.
const LISTENERS: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE starts_with(application_name, 'rlock:')";

/// Releases a lock for which the other client waits.
async fn hand_off(one: &LockClient, other: &LockClient) {
    let guard = one.lock("k").acquire().await.expect("free");
    let waiter = waiting_at(other, 1).await;
    guard.release().await.expect("held");
    its_turn(waiter).await.release().await.expect("held");
}

#[tokio::test]
async fn a_pooler_of_transactions_is_named_once_and_its_sessions_are_left_as_they_were() {
    keep_log();
    let server = PostgresServer::start();
    let pooler = Pooler::of_transactions(&server);
    let (one, other) = (connect(&pooler.url()).await, connect(&pooler.url()).await);
    hand_off(&one, &other).await;
    let warned = logged_of("a pooler drops notifications");
    let warned = warned
        .iter()
        .filter(|line| line.contains(&pooler.address()));
    assert_eq!(warned.count(), 2, "once for each client");
    assert_eq!(server.number(LISTENERS).await, 0);
    let advisory = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(server.number(advisory).await, 0);
    // At once, so that they get all sessions of the pooler.
    let foreign = join_all((0..40).map(async |_| {
        let (session, connection) = tokio_postgres::connect(&pooler.url(), NoTls)
            .await
            .expect("the pooler runs");
        tokio::spawn(connection);
        let settings = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name), pg_sleep(0.2) FROM pg_settings
            WHERE name IN ('enable_seqscan', 'lock_timeout', 'plan_cache_mode') OR name LIKE 'rlock%' AND setting <> ''";
        session.simple_query(settings).await.expect("a reply")
    }))
    .await;
    for reply in foreign {
        let row = reply.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        assert_eq!(
            row,
            Some("enable_seqscan=on lock_timeout=0 plan_cache_mode=auto")
        );
    }
}

/// No message reports the loss.
#[tokio::test]
async fn a_renewal_through_a_pooler_finds_that_the_lock_was_deleted() {
    let server = PostgresServer::start();
    let pooler = Pooler::of_transactions(&server);
    let client = connect(&pooler.url()).await;
    let guard = client.lock("k").lease(ms(9000)).acquire().await;
    let guard = guard.expect("free");
    assert!(server.delete("lock:{k}").await);
    assert_lost(&guard, LONG, LostCause::Removed).await;
}

#[tokio::test]
async fn a_client_that_knows_the_server_listens_past_the_pooler() {
    let server = PostgresServer::start();
    let transactions = Pooler::of_transactions(&server);
    let sessions = Pooler::of_sessions(&server);
    for url in [
        transactions.url_with_direct(),
        format!("{}?direct={}", transactions.url(), sessions.address()),
    ] {
        let (one, other) = (connect(&url).await, connect(&url).await);
        hand_off(&one, &other).await;
        assert_eq!(server.number(LISTENERS).await, 2);
        let guard = one.lock("k").acquire().await.expect("free");
        let waiter = waiting_at(&other, 1).await;
        let polls = "SELECT count(*) FROM rlock.waiter WHERE polls_until IS NOT NULL";
        assert_eq!(server.number(polls).await, 0);
        guard.release().await.expect("held");
        drop(its_turn(waiter).await);
        drop((one, other));
        eventually(LONG, "their sessions have ended", async || {
            server.number(LISTENERS).await == 0
        })
        .await;
    }
}

/// Its row says until when it would have asked again.
#[tokio::test]
async fn a_waiter_that_polls_no_more_costs_the_next_one_a_grace_period_at_most() {
    let server = PostgresServer::start();
    let pooler = Pooler::of_transactions(&server);
    let (one, other) = (connect(&pooler.url()).await, connect(&pooler.url()).await);
    let guard = one.lock("k").acquire().await.expect("free");
    let gone = |owner: &str, until: &str| {
        format!(
            "INSERT INTO rlock.waiter (key, owner, since, polls_until)
               VALUES ('lock:{{k}}', '{owner}', clock_timestamp(), clock_timestamp() {until})"
        )
    };
    let silent = "b9b1a3b0-8a8f-4a43-8d3f-0f5f6f7f8f9f:1";
    server.execute(&gone(silent, "- interval '1 s'")).await;
    let present = "b9b1a3b0-8a8f-4a43-8d3f-0f5f6f7f8f9f:2";
    server.execute(&gone(present, "+ interval '1 h'")).await;
    let waiter = waiting_at(&other, 3).await;
    guard.release().await.expect("held");
    let held = format!("SELECT count(*) FROM rlock.holder WHERE owner = '{silent}'");
    assert_eq!(server.number(&held).await, 0);
    assert!(its_turn(waiter).await.is_valid(), "the grace is over");
}

/// A service with a pooler at one of its instances, or a deployment that adds one.
#[tokio::test]
async fn clients_with_a_pooler_and_without_one_wait_in_one_queue() {
    let server = PostgresServer::start();
    let pooler = Pooler::of_transactions(&server);
    let (listens, polls) = (connect(&server.url()).await, connect(&pooler.url()).await);
    hand_off(&listens, &polls).await;
    hand_off(&polls, &listens).await;
    let guard = listens.lock("k").acquire().await.expect("free");
    let first = waiting_at(&polls, 1).await;
    let second = waiting_at(&connect(&server.url()).await, 2).await;
    guard.release().await.expect("held");
    let first = its_turn(first).await;
    assert!(!second.is_finished());
    first.release().await.expect("held");
    drop(its_turn(second).await);
}

#[tokio::test]
async fn the_doctor_names_the_pooler_and_the_way_past_it() {
    let server = PostgresServer::start();
    let pooler = Pooler::of_transactions(&server);
    for (url, severity, text) in [
        (
            server.url(),
            Severity::Good,
            "no pooler in front of the server",
        ),
        (pooler.url(), Severity::Advice, "drops notifications"),
        (pooler.url_with_direct(), Severity::Good, "over `direct`"),
        (
            format!("{0}?direct={1}", pooler.url(), pooler.address()),
            Severity::Advice,
            "must keep sessions",
        ),
        (
            format!("{}?direct={}/template1", pooler.url(), server.address()),
            Severity::Unsafe,
            "another server or database",
        ),
        (
            format!("{}?direct=127.0.0.1:1", pooler.url()),
            Severity::Unsafe,
            "`direct`, 127.0.0.1:1/",
        ),
    ] {
        let findings = diagnose::store(&url, &builder()).await.expect("it runs");
        let finding = findings.iter().find(|finding| finding.check == "pooler");
        let finding = finding.expect("there is a check");
        assert_eq!(finding.severity, severity, "{finding:?}");
        assert!(finding.to_string().contains(text), "{finding}");
    }
}

/// Asserts that a client refuses this `direct`, whether it connects at once or later.
async fn assert_refuses(pooler: &Pooler, direct: &str, text: &str) {
    let url = format!("{}?direct={direct}", pooler.url());
    let lazy = LockClient::connect_lazy(url.as_str()).expect("valid");
    let lazy = lazy.lock("k").wait(ms(900)).acquire().await.map(drop);
    let eager = builder().connect(url.as_str()).await.map(drop);
    for refused in [lazy, eager] {
        let refused = format!("{:#}", refused.expect_err(direct));
        assert!(refused.contains(text), "{refused}");
    }
}

#[tokio::test]
async fn a_direct_address_that_leads_elsewhere_is_refused_by_name() {
    let server = PostgresServer::start();
    let pooler = Pooler::of_transactions(&server);
    assert_refuses(&pooler, "127.0.0.1:1", "`direct`, 127.0.0.1:1/").await;
    let elsewhere = format!("postgres@{}/template1", server.address());
    assert_refuses(&pooler, &elsewhere, "without the tables of the schema").await;
    // The refused clients created no tables there. This one does, so that the next ones compare the databases.
    let session = tokio_postgres::connect(&format!("postgres://{elsewhere}"), NoTls).await;
    let (session, connection) = session.expect("the server runs");
    tokio::spawn(connection);
    let schema = "SELECT to_regnamespace('rlock') IS NULL";
    let row = session.query_one(schema, &[]).await.expect("a row");
    assert!(row.get::<_, bool>(0));
    drop(connect(&format!("postgres://{elsewhere}")).await);
    assert_refuses(&pooler, &elsewhere, "another server or database").await;
    let named = format!("{}?direct=postgres@{}", pooler.url(), server.address());
    hand_off(&connect(&named).await, &connect(&named).await).await;
}

/// A transaction is several messages, and the tasks run on several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_of_many_tasks_share_no_transaction() {
    let server = PostgresServer::start();
    let pooler = Pooler::of_transactions(&server);
    // On a busy machine, the last of these requests waits for a while.
    let client = connect_with(LONG, &pooler.url()).await;
    let calls = (0..200).map(|n| {
        let lock = client.lock(format!("k:{n}"));
        tokio::spawn(async move { lock.acquire().await.expect("free").release().await })
    });
    for call in join_all(calls).await {
        call.expect("no panic").expect("held");
    }
    let rolled_back = "SELECT xact_rollback FROM pg_stat_database WHERE datname = 'postgres'";
    assert_eq!(server.number(rolled_back).await, 0);
}

/// Otherwise its transaction would keep the row of the lock, and the client would wait for its end, for as long as the pooler takes
/// the connection for a living one.
#[tokio::test]
async fn a_transaction_whose_end_is_lost_on_the_way_to_the_pooler_is_ended() {
    let server = PostgresServer::start();
    let pooler = Pooler::of_transactions(&server);
    let way = Way::to(pooler.address()).await;
    let client = connect(&pooler.url().replace(&pooler.address(), &way.address)).await;
    way.loses_commit.store(true, Ordering::SeqCst);
    let guard = client.lock("k").acquire().await.expect("free");
    assert!(!way.loses_commit.load(Ordering::SeqCst), "nothing was lost");
    guard.release().await.expect("held");
}

/// The network to a pooler, which can lose the end of a transaction, and all that follows it, in silence.
struct Way {
    address: String,
    /// Whether that happens to the next acquire.
    loses_commit: Arc<AtomicBool>,
}

impl Way {
    async fn to(pooler: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let loses_commit = Arc::<AtomicBool>::default();
        let loses = Arc::clone(&loses_commit);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let pooler = TcpStream::connect(&pooler).await.expect("it runs");
                tokio::spawn(pass(client, pooler, Arc::clone(&loses)));
            }
        });
        Self {
            address,
            loses_commit,
        }
    }
}

async fn pass(client: TcpStream, pooler: TcpStream, loses_commit: Arc<AtomicBool>) {
    let (mut requests, mut to_client) = client.into_split();
    let (mut replies, mut to_pooler) = pooler.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut replies, &mut to_client).await });
    let mut bytes = vec![0; 1 << 16];
    while let Ok(length @ 1..) = requests.read(&mut bytes).await {
        let part = &bytes[..length];
        let at = |text: &[u8]| part.windows(text.len()).position(|bytes| bytes == text);
        if let (Some(_), Some(end)) = (at(b"acquire"), at(b"Q\0\0\0\x0bCOMMIT\0"))
            && loses_commit.swap(false, Ordering::SeqCst)
        {
            to_pooler.write_all(&part[..end]).await.expect("it runs");
            // No end of the connection arrives, either.
            return pending().await;
        }
        to_pooler.write_all(part).await.expect("it runs");
    }
}
