//! Sentinels and servers that require passwords and certificates.

use std::sync::Arc;

use rlock_testkit::{Authority, Trio};

use crate::{
    common::{LASTING, LONG, count},
    security::certificates::assert_lets_in_shown_certificates_only,
    topologies::{assert_soon_extended, hold_renewed},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_may_speak_tls_and_ask_for_certificates_and_passwords() {
    let authority = Arc::new(Authority::new());
    let trio = Trio::builder().tls(&authority).passwords().start().await;
    assert!(trio.url().starts_with("rediss-sentinel://"));
    let client = assert_lets_in_shown_certificates_only(&trio.url().into(), &authority).await;
    let guard = hold_renewed(&client, "k").await;
    assert_eq!(count(&trio.master, &guard).await, Some(1));
    trio.replica.catch_up_with(&trio.master).await;
    trio.lose_master().await;
    trio.failed_over().await;
    assert_soon_extended(&guard).await;
    guard.release().await.expect("held");
    let again = client.lock("k").lease(LASTING).wait(LONG).acquire().await;
    let again = again.expect("free");
    assert_eq!(count(&trio.replica, &again).await, Some(1));
    again.release().await.expect("held");
}
