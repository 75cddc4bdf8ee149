//! What is special about locks in Postgres: ended sessions, rows that others keep, lists and garbage.

mod durability;
mod schema;
mod writable;

use std::{future::poll_fn, net::TcpListener, task::Poll, time::Duration};

use futures_util::{StreamExt as _, future::join_all};
use rlock_core::{LockClient, LockError};
use rlock_testkit::{Authority, PostgresServer, eventually};

use super::assert_soon_extended;
use crate::common::{
    Acquiring, LONG, acquiring, assert_lost, assert_refused, assert_soon_waits, builder, its_turn,
};

/// A lease that a restart of the server does not outlast, and that is renewed within a test.
const LEASE: Duration = Duration::from_secs(30);

/// Ends the sessions of all lock clients.
const END_ALL: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE starts_with(application_name, 'rlock:')";

async fn connect(server: &PostgresServer) -> LockClient {
    connect_to(&server.url()).await
}

pub(super) async fn connect_to(url: &str) -> LockClient {
    try_connect(url).await.expect("the server runs")
}

/// Connects, or returns the refusal.
async fn try_connect(url: &str) -> Result<LockClient, LockError> {
    let builder = builder().default_lease(LEASE).default_wait(LONG);
    builder.connect(url).await
}

/// Starts a call that waits for `k`, and returns once this many do.
pub(super) async fn waiting_at(client: &LockClient, place: usize) -> Acquiring {
    let waiting = acquiring(client.lock("k").wait(LONG));
    assert_soon_waits(client, "k", place).await;
    waiting
}

/// The release finds out that the client of the first waiter is gone, so the next waiter waits for no grace period. A proxy
/// holds the requests of the next one, which would remove the first, too.
#[tokio::test]
async fn a_release_passes_over_a_waiter_whose_client_is_gone() {
    let server = PostgresServer::start().behind_proxy();
    let one = connect(&server).await;
    let other = builder()
        .response_timeout(LONG)
        .connect(server.announced_url());
    let other = other.await.expect("it runs");
    let guard = one.lock("k").acquire().await.expect("free");
    let gone = "INSERT INTO rlock.waiter (key, owner, since)
        VALUES ('lock:{k}', 'b9b1a3b0-8a8f-4a43-8d3f-0f5f6f7f8f9f:1', clock_timestamp())";
    server.execute(gone).await;
    let waiter = waiting_at(&other, 2).await;
    server.front().hold_requests();
    guard.release().await.expect("it is held");
    let waiters = server.number("SELECT count(*) FROM rlock.waiter").await;
    assert_eq!(waiters, 0);
    let holders = server.pairs("SELECT key, owner FROM rlock.holder").await;
    server.front().pass();
    let guard = its_turn(waiter).await;
    assert_eq!(holders, [("lock:{k}".to_owned(), guard.owner())]);
}

/// An operator may look at the row of a lock, and forget the transaction.
#[tokio::test]
async fn a_row_that_another_transaction_keeps_is_named_and_leaves_no_lock_behind() {
    let server = PostgresServer::start();
    let client = connect(&server).await;
    let guard = client.lock("k").acquire().await.expect("free");
    guard.release().await.expect("held");
    let session = server.keep_row("lock:{k}").await;
    let refused = client.lock("k").try_acquire().await;
    let error = refused.expect_err("the row is kept");
    assert!(
        format!("{error:#}").contains("another transaction has locked the row"),
        "{error}"
    );
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    drop(client.lock("other").acquire().await.expect("free"));
    let waits = acquiring(client.lock("k").wait(LONG));
    session.batch_execute("ROLLBACK").await.expect("it may");
    its_turn(waits).await.release().await.expect("held");
    eventually(LONG, "the lock is free", async || {
        client.inspect("k").await.expect("a reply").is_none()
    })
    .await;
}

#[tokio::test]
async fn calls_of_several_keys_in_any_order_never_wait_in_a_circle() {
    let server = PostgresServer::start();
    let clients = join_all((0..3).map(|_| connect(&server))).await;
    let calls = (0..90_usize).map(|n| {
        let client = &clients[n % 3];
        async move {
            let mut keys = ["a", "b", "c", "d"];
            keys.rotate_left(n % 4);
            if n % 2 == 0 {
                keys.reverse();
            }
            let lock = client.lock_all(keys.into_iter().take(3)).wait(LONG);
            let guard = lock.acquire().await.expect("it waits");
            guard.release().await.expect("held");
        }
    });
    join_all(calls).await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(server.number(deadlocks).await, 0);
}

#[tokio::test]
async fn the_rows_of_keys_that_are_not_used_any_more_go_with_new_keys() {
    let server = PostgresServer::start();
    let client = connect(&server).await;
    let uses = async |key: String| drop(client.lock(key).acquire().await.expect("free"));
    for n in 0..60 {
        uses(format!("old:{n}")).await;
    }
    let held = client.lock("old:held").acquire().await.expect("free");
    let rows = "SELECT count(*) FROM rlock.lock WHERE key LIKE 'lock:{old:%'";
    eventually(LONG, "all are released", async || {
        server.number("SELECT count(*) FROM rlock.holder").await == 1
    })
    .await;
    assert_eq!(server.number(rows).await, 61);
    let later = "UPDATE rlock.lock SET kept_until = kept_until - interval '1 hour' WHERE key <> 'lock:{old:held}'";
    server.execute(later).await;
    for n in 0..30 {
        uses(format!("new:{n}")).await;
    }
    assert_eq!(server.number(rows).await, 1);
    assert!(held.is_valid());
}

#[tokio::test]
async fn sessions_are_encrypted_if_the_url_requires_it_and_certificates_are_verified() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = PostgresServer::start_with_tls(&authority);
    let url = format!("{}?sslmode=require", server.url());
    let trusting = |authority: &Authority| builder().tls_ca(authority.ca_pem());
    let client = trusting(&authority).connect(&url).await.expect("trusted");
    let guard = client.lock("k").acquire().await.expect("free");
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE ssl AND starts_with(application_name, 'rlock:')";
    assert_eq!(server.number(encrypted).await, 2);
    guard.release().await.expect("held");
    let said = assert_refused(trusting(&other).connect(&url).await, "another authority");
    assert!(said.contains("certificate"), "{said}");
}

#[tokio::test]
async fn a_host_that_is_silent_keeps_no_client_from_the_next_one() {
    let server = PostgresServer::start();
    // It accepts connections, and never replies.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = listener.local_addr().expect("bound");
    let hosts = format!("@{silent},127.0.0.1");
    let url = server.url().replace("@127.0.0.1", &hosts);
    let builder = builder().connect_timeout(Duration::from_secs(10));
    let client = builder.connect(&url).await.expect("the second one runs");
    drop(client.lock("k").acquire().await.expect("free"));
}

/// The reply is larger than what the sockets keep, but from few rows, so that no server takes its time for a silence of a third of
/// the lease.
#[tokio::test]
async fn a_list_that_is_not_polled_any_more_holds_up_nothing_of_its_client() {
    let server = PostgresServer::start();
    let client = connect(&server).await;
    let fill = "INSERT INTO rlock.lock (key, kept_until)
          SELECT format('lock:{%s:%s}', n, repeat('x', 2000)), now() + interval '1 hour' FROM generate_series(1, 10000) n;
        INSERT INTO rlock.holder (key, owner, expires_at) SELECT key, 'someone', kept_until FROM rlock.lock";
    server.execute(fill).await;
    let lock = client.lock("k").lease(Duration::from_secs(9));
    let guard = lock.acquire().await.expect("free");
    let sessions = "SELECT coalesce(sum(pid), 0) FROM pg_stat_activity WHERE starts_with(application_name, 'rlock:')";
    let before = server.number(sessions).await;
    let scans = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%held%' AND starts_with(application_name, 'rlock:')";
    let mut list = client.list("*").scan(true);
    while server.number(scans).await == 0 {
        let polled = poll_fn(|context| Poll::Ready(list.poll_next_unpin(context))).await;
        assert!(!matches!(polled, Poll::Ready(None)), "it is not read yet");
    }
    for _ in 0..2 {
        assert_soon_extended(&guard).await;
    }
    assert_eq!(server.number(sessions).await, before, "they are silent");
}

/// The row of the other key could go, and only this request keeps it.
#[tokio::test]
async fn a_request_for_a_new_key_and_one_that_was_not_used_for_long_gets_both() {
    let server = PostgresServer::start();
    let client = connect(&server).await;
    let guard = client.lock("old").acquire().await.expect("free");
    guard.release().await.expect("held");
    server
        .execute("UPDATE rlock.lock SET kept_until = kept_until - interval '1 hour'")
        .await;
    let both = client.lock_all(["new", "old"]).acquire().await;
    both.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn a_row_that_another_transaction_keeps_costs_a_client_no_other_lock() {
    let server = PostgresServer::start();
    let client = connect(&server).await;
    let lease = Duration::from_secs(16);
    let locks = (0..8).map(|n| client.lock(format!("k:{n}")).lease(lease));
    let guards = locks.map(async |lock| lock.acquire().await.expect("free"));
    let mut guards = join_all(guards).await;
    let _session = server.keep_row("lock:{k:3}").await;
    let kept = guards.remove(3);
    assert_lost(&kept, LONG, rlock_core::LostCause::Expired).await;
    for guard in &guards {
        assert_soon_extended(guard).await;
    }
}
