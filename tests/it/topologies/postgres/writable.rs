//! Which Postgres server grants locks: the primary of those that a URL names, even after a failover, and none that is read-only.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::{
    LockClient, LockError, LockGuard,
    diagnose::{self, Severity},
};
use rlock_testkit::{PostgresServer, Witness, assert_taken, eventually};

use super::{super::assert_soon_extended, END_ALL, LEASE, connect, connect_to, try_connect};
use crate::common::{LONG, builder, ms};

/// Returns the URL of both servers.
fn both(primary: &PostgresServer, standby: &PostgresServer) -> String {
    let hosts = format!("{},{}", primary.address(), standby.address());
    primary.url().replace(&primary.address(), &hosts)
}

/// Asserts that the holder keeps its lock at the other server, and that its release hands it on.
async fn assert_kept(guard: LockGuard, other: &LockClient) {
    assert_taken(other, "k").await;
    assert_soon_extended(&guard).await;
    let token = guard.token();
    let waiter = tokio::spawn(other.lock("k").wait(LONG).acquire());
    guard.release().await.expect("it is held");
    let next = waiter.await.expect("no panic").expect("released");
    assert!(next.token() > token);
}

/// Promotes a synchronous standby after the primary has gone in some way, while a client holds a lock.
async fn assert_survives(goes: impl AsyncFnOnce(&PostgresServer)) {
    let primary = PostgresServer::start();
    drop(connect(&primary).await);
    let standby = primary.start_standby().await;
    let url = both(&primary, &standby);
    let (one, other) = (connect_to(&url).await, connect_to(&url).await);
    let guard = one.lock("k").acquire().await.expect("free");
    goes(&primary).await;
    standby.promote().await;
    assert_kept(guard, &other).await;
}

#[tokio::test]
async fn a_granted_lock_survives_the_loss_of_the_primary_with_a_synchronous_standby() {
    assert_survives(async |primary| primary.kill()).await;
}

/// As an operator does it: the former primary takes no writes any more.
#[tokio::test]
async fn a_planned_switch_to_a_standby_keeps_the_locks() {
    assert_survives(async |primary| primary.set("default_transaction_read_only", "on").await).await;
}

#[tokio::test]
async fn a_standby_is_refused_with_the_way_out_and_examined() {
    let primary = PostgresServer::start();
    drop(connect(&primary).await);
    let standby = primary.start_standby().await;
    let error = try_connect(&standby.url()).await;
    let error = error.expect_err("it grants no locks");
    let text = format!("{error:#}");
    assert!(
        text.contains("a standby or read-only; connect to the primary"),
        "{text}"
    );

    let examine = async |url: &str| {
        let findings = diagnose::store(url, &builder()).await;
        findings.expect("both run")
    };
    let findings = examine(&standby.url()).await;
    let refused = findings.iter().find(|one| one.check == "primary");
    let refused = refused.expect("it is a standby");
    assert_eq!(refused.severity, Severity::Unsafe);
    assert!(refused.server.ends_with("(grants no locks)"), "{refused}");

    let findings = examine(&both(&primary, &standby)).await;
    for (check, server) in [("primary", &standby), ("grant", &primary)] {
        let mut of = findings.iter().filter(|one| one.check == check);
        let (found, more) = (of.next().expect(check), of.next());
        assert!(found.server.starts_with(&server.address()), "{found}");
        assert_eq!((found.severity, more), (Severity::Good, None), "{found}");
    }
    primary.kill();
    let findings = examine(&both(&primary, &standby)).await;
    let worst = |check: &str| {
        let of = findings.iter().filter(|one| one.check == check);
        of.map(|one| one.severity).max()
    };
    assert_eq!(worst("primary"), Some(Severity::Unsafe));
    assert_eq!(worst("connection"), Some(Severity::Unsafe));
}

/// An operator wants no writes for a while. A holder keeps its lock if that is shorter than the lease.
#[tokio::test]
async fn a_server_that_becomes_read_only_refuses_locks_until_it_takes_writes_again() {
    let server = PostgresServer::start();
    // Several calls that are refused end within its leases.
    let builder = builder().default_lease(LEASE).default_wait(LONG);
    let client = builder.response_timeout(ms(5_000)).connect(server.url());
    let client = client.await.expect("the server runs");
    let guard = client.lock("k").acquire().await.expect("free");
    let refuses = async || {
        let refused = client.lock("other").try_acquire().await;
        refused.is_err_and(|error| {
            assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
            let text = format!("{error:#}");
            text.contains("check `default_transaction_read_only`")
        })
    };
    let grants = async || {
        let other = client.lock("other").wait(LONG);
        drop(other.acquire().await.expect("free"));
    };
    let name = "default_transaction_read_only";
    server.set(name, "on").await;
    eventually(LONG, "it is refused", refuses).await;
    server.set(name, "off").await;
    grants().await;
    assert_soon_extended(&guard).await;

    // Sessions that are open already may still write.
    let of_database = |value: &str| {
        format!("BEGIN READ WRITE; ALTER DATABASE postgres SET {name} = {value}; COMMIT")
    };
    server.execute(&of_database("on")).await;
    drop(client.lock("other").acquire().await.expect("free"));
    server.execute(END_ALL).await;
    eventually(LONG, "it is refused", refuses).await;
    server.execute(&of_database("off")).await;
    grants().await;
    assert_soon_extended(&guard).await;
}

/// A client has a level of its own, because every other one rolls back requests that overlap.
#[tokio::test]
async fn locks_are_the_same_if_transactions_are_serializable_by_default() {
    let server = PostgresServer::start();
    for level in ["repeatable read", "serializable"] {
        let set = format!("ALTER DATABASE postgres SET default_transaction_isolation = '{level}'");
        server.execute(&set).await;
        let clients = join_all((0..3).map(|_| connect(&server))).await;
        let witness = Witness::new();
        let calls = (0..60_usize).map(|n| {
            let (client, witness) = (&clients[n % 3], &witness);
            async move {
                let both = client.lock_all(["a", "b"]).wait(LONG);
                let guard = both.acquire().await.expect(level);
                let inside = witness.enter(level);
                tokio::time::sleep(Duration::from_millis(1)).await;
                drop(inside);
                guard.release().await.expect("held");
            }
        });
        join_all(calls).await;
        witness.assert_held();
    }
}
