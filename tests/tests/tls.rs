//! Locks over TLS.

use std::{path::Path, process::Command, time::Duration};

use rlock_core::{LockClient, LockError};
use rlock_tests::{RedisServer, Worker};

const LONG: Duration = Duration::from_secs(20);

/// What a process says that trusts the certificates in `roots`.
async fn connect_trusting(roots: &Path, url: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_connect"));
    let mut worker = Worker::start(command.arg(url).env("SSL_CERT_FILE", roots));
    worker.line(LONG).await.expect("a line")
}

#[tokio::test]
async fn a_server_whose_certificate_the_system_trusts_is_used() {
    let server = RedisServer::builder().tls().start();
    for protocol in ["", "?protocol=resp2"] {
        let url = format!("{}{protocol}", server.tls_url());
        assert_eq!(
            connect_trusting(server.ca_path(), &url).await,
            "locked 2 time(s)"
        );
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let server = RedisServer::builder().tls().start();
    let error = LockClient::connect(&server.tls_url())
        .await
        .expect_err("unknown issuer");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("certificate") && text.contains("127.0.0.1"),
        "{text}"
    );
    let other = RedisServer::builder().tls().start();
    let said = connect_trusting(other.ca_path(), &server.tls_url()).await;
    assert!(
        said.starts_with("failed: ") && said.contains("certificate"),
        "{said}"
    );
}
