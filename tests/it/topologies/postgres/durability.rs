//! What a crash of a Postgres server leaves: every granted lock, or none if the URL says `durability=memory`.

use std::time::Duration;

use rlock_core::LostCause;
use rlock_testkit::{PostgresServer, assert_taken};

use super::{super::assert_soon_extended, connect, connect_to, try_connect};
use crate::common::{LONG, assert_lost, assert_refused};

fn in_memory(server: &PostgresServer) -> String {
    format!("{}?durability=memory", server.url())
}

/// The server's own setting would lose the grant, whose transaction it does not write to the disk at once.
#[tokio::test]
async fn a_granted_lock_survives_a_crash_of_its_server() {
    let server = PostgresServer::start();
    // What is not written at once is not written before the crash.
    server.set("wal_writer_delay", "'10s'").await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let released = one.lock("released").acquire().await.expect("free");
    let earlier = released.token();
    let guard = one.lock("order:42").acquire().await.expect("free");
    server.kill();
    server.restart();
    assert_taken(&other, "order:42").await;
    assert_soon_extended(&guard).await;
    // A release that the crash undoes may be repeated.
    released.release().await.expect("it is held");
    guard.release().await.expect("it is held");
    let next = other.lock("released").acquire().await.expect("free");
    assert!(next.token() > earlier);
    let next = other.lock("order:42").acquire().await;
    drop(next.expect("free"));
}

/// The session of the client keeps the setting that it began with.
#[tokio::test]
async fn a_grant_survives_a_crash_although_the_setting_of_the_server_was_lowered() {
    let server = PostgresServer::start();
    server.set("synchronous_commit", "on").await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    server.set("synchronous_commit", "off").await;
    let guard = one.lock("k").acquire().await.expect("free");
    server.kill();
    server.restart();
    assert_taken(&other, "k").await;
    assert_soon_extended(&guard).await;
}

/// A new session renews at once, so that the overlap with the next holder ends.
#[tokio::test]
async fn a_crash_loses_the_locks_in_memory_and_their_holder_learns_it() {
    let server = PostgresServer::start();
    let one = connect_to(&in_memory(&server)).await;
    let lease = Duration::from_secs(3_600);
    let guard = one.lock("k").lease(lease).acquire().await.expect("free");
    let readers = one.lock("r").shared().lease(lease);
    let reader = readers.acquire().await.expect("free");
    let (token, of_reader) = (guard.token(), reader.token());
    server.kill();
    server.restart();
    // No renewal of this lease is due before the test ends.
    assert_lost(&guard, LONG, LostCause::Removed).await;
    assert_lost(&reader, LONG, LostCause::Removed).await;
    let other = connect_to(&in_memory(&server)).await;
    let next = other.lock_all(["k", "r"]).acquire().await.expect("free");
    assert!(next.token_of("k").is_some_and(|next| next > token));
    assert!(next.token_of("r").is_some_and(|next| next > of_reader));
    guard.release().await.expect_err("it is lost");
    assert_taken(&one, "k").await;
    assert_taken(&one, "r").await;
}

#[tokio::test]
async fn a_restart_keeps_the_locks_in_memory() {
    let server = PostgresServer::start();
    let (one, other) = (
        connect_to(&in_memory(&server)).await,
        connect_to(&in_memory(&server)).await,
    );
    let guard = one.lock("k").acquire().await.expect("free");
    server.stop();
    server.restart();
    assert_taken(&other, "k").await;
    assert_soon_extended(&guard).await;
    guard.release().await.expect("it is held");
}

/// No standby confirms a commit here, which is what a slow disk is like.
#[tokio::test]
async fn only_a_grant_that_survives_a_crash_waits_for_the_disk() {
    let server = PostgresServer::start();
    let memory = format!("{}&schema=other", in_memory(&server));
    let (durable, memory) = (connect(&server).await, connect_to(&memory).await);
    server.set("synchronous_standby_names", "'none'").await;
    let waits = durable.lock("k").acquire();
    let mut waits = std::pin::pin!(waits);
    for _ in 0..20 {
        let guard = tokio::select! {
            biased;
            granted = memory.lock("k").acquire() => granted.expect("free"),
            granted = &mut waits => panic!("it does not wait: {granted:?}"),
        };
        assert!(guard.is_valid());
        guard.release().await.expect("it is held");
    }
}

#[tokio::test]
async fn clients_of_different_durability_share_no_schema() {
    let server = PostgresServer::start();
    for (first, other) in [("disk", "memory"), ("memory", "disk")] {
        let schema = format!("{}?schema=of_{first}&durability=", server.url());
        let url = |durability: &str| format!("{schema}{durability}");
        let one = connect_to(&url(first)).await;
        let guard = one.lock("k").acquire().await.expect("free");
        let outcome = try_connect(&url(other)).await;
        let text = assert_refused(outcome, "the tables are of another durability");
        for part in [
            format!("the schema `of_{first}` have the durability `{first}`"),
            format!("asks for `{other}`"),
            format!("`durability={first}`"),
            "`?schema=`".to_owned(),
        ] {
            assert!(text.contains(&part), "{part}: {text}");
        }
        // The way out keeps the locks, and the sessions of the former clients.
        let (_, change) = text.split_once("the URLs of all clients: ").expect(&text);
        let (change, _) = change.rsplit_once("LOGGED").expect(&text);
        server.execute(&format!("{change}LOGGED")).await;
        let client = connect_to(&url(other)).await;
        assert_taken(&client, "k").await;
        assert_soon_extended(&guard).await;
    }
}
