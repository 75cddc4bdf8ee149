//! Sentinels and servers that require passwords and certificates.

use std::{sync::Arc, time::Duration};

use rlock_core::{LockClient, LockError};
use rlock_testkit::{Authority, Trio};

use crate::{
    common::{LASTING, LONG, count},
    topologies::{assert_soon_extended, hold_renewed},
};

#[tokio::test]
async fn everything_may_speak_tls_and_ask_for_certificates_and_passwords() {
    let authority = Arc::new(Authority::new());
    let trio = Trio::builder().tls(&authority).passwords();
    let trio = trio.silence(Duration::from_secs(2)).start().await;
    assert!(trio.url().starts_with("rediss-sentinel://"));
    let (certificate, key) = authority.client_certificate("billing");
    let trusting = LockClient::builder()
        .connect_timeout(LONG)
        .tls_ca(authority.ca_pem());
    let client = trusting.clone().tls_client_certificate(certificate, key);
    let client = client.connect(&trio.url()).await.expect("let in");

    let unknown = trusting.connect_timeout(Duration::from_secs(3));
    let error = unknown.connect(&trio.url()).await;
    let error = error.expect_err("it shows no certificate");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let stranger = LockClient::builder()
        .connect_timeout(LONG)
        .tls_ca(Authority::new().ca_pem());
    let error = stranger.connect(&trio.url()).await;
    let error = error.expect_err("it trusts another authority");
    assert!(matches!(error, LockError::Refused { .. }), "{error:?}");
    assert!(format!("{error:#}").contains("certificate"), "{error:#}");

    let guard = hold_renewed(&client, "k").await;
    assert_eq!(count(&trio.master, &guard).await, Some(1));
    trio.replica.catch_up_with(&trio.master).await;
    trio.master.kill();
    trio.failed_over().await;
    assert_soon_extended(&guard).await;
    guard.release().await.expect("held");
    let again = client.lock("k").lease(LASTING).wait(LONG).acquire().await;
    let again = again.expect("free");
    assert_eq!(count(&trio.replica, &again).await, Some(1));
    again.release().await.expect("held");
}
