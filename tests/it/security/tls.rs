//! Locks over TLS: which certificates a client accepts.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rlock_core::{LockClient, LockError};
use rlock_testkit::{Authority, RedisServer, Worker, within};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::common::{LONG, assert_refused, assert_unavailable, builder};

/// Returns the output of a process that trusts the certificates in `roots`.
async fn connect_trusting(roots: &Path, url: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_connect"));
    let mut worker = Worker::start(command.arg(url).env("SSL_CERT_FILE", roots));
    worker.line(LONG).await.expect("a line")
}

/// Starts a server with a certificate for `host`, changed by `changed`. Returns it with its authority.
fn server_with_certificate(
    case: usize,
    host: &str,
    changed: fn(&mut CertificateParams),
) -> (RedisServer, String) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate().expect("a key");
    let ca = authority.self_signed(&authority_key).expect("signed").pem();
    let issuer = Issuer::new(authority, authority_key);

    let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
    changed(&mut params);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &issuer).expect("signed").pem();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("certificates-{case}"));
    fs::create_dir_all(&directory).expect("a directory");
    let mut builder = RedisServer::builder().tls();
    for (option, file, content) in [
        ("tls-ca-cert-file", "ca.pem", ca.clone()),
        ("tls-cert-file", "server.pem", certificate),
        ("tls-key-file", "server.key", key.serialize_pem()),
    ] {
        let path = directory.join(file);
        fs::write(&path, content).expect("writable");
        builder = builder.config(option, &format!("\"{}\"", path.display()));
    }
    (builder.start(), ca)
}

#[tokio::test]
async fn a_server_whose_certificate_the_system_trusts_is_used() {
    let server = RedisServer::builder().tls().start();
    for protocol in ["", "?protocol=resp2"] {
        let url = format!("{}{protocol}", server.tls_url());
        let said = connect_trusting(server.ca_path(), &url).await;
        assert_eq!(said, "locked 2 time(s)");
    }
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let server = RedisServer::builder().tls().start();
    let outcome = builder().connect(&server.tls_url()).await;
    let text = assert_refused(outcome, "unknown issuer");
    for part in ["127.0.0.1", "certificate", "`tls_ca`", "`SSL_CERT_FILE`"] {
        assert!(text.contains(part), "{text}");
    }
    // Nothing changes while the client waits.
    let started = Instant::now();
    let waits = LockClient::builder().connect_retry_for(LONG);
    assert_refused(waits.connect(&server.tls_url()).await, "unknown issuer");
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
    let other = RedisServer::builder().tls().start();
    let said = connect_trusting(other.ca_path(), &server.tls_url()).await;
    let is_refused = said.starts_with("failed: ") && said.contains("certificate");
    assert!(is_refused, "{said}");
    // No URL switches the verification off.
    for end in ["#insecure", "?insecure=true", "?ssl_cert_reqs=none"] {
        let url = format!("{}{end}", server.tls_url());
        LockClient::connect(&url).await.expect_err(end);
    }
}

#[tokio::test]
async fn a_certificate_is_accepted_for_its_host_and_within_its_time() {
    type Change = fn(&mut CertificateParams);
    let expired: Change = |params| params.not_after = date_time_ymd(2020, 1, 1);
    let early: Change = |params| params.not_before = date_time_ymd(2200, 1, 1);
    let cases: [(&str, Change, &str); 4] = [
        ("localhost", |_| {}, "certificate not valid for name"),
        ("127.0.0.2", |_| {}, "certificate not valid for name"),
        ("127.0.0.1", expired, "expired"),
        ("127.0.0.1", early, "not valid yet"),
    ];
    for (case, (host, changed, why)) in cases.into_iter().enumerate() {
        let (server, ca) = server_with_certificate(case, host, changed);
        let builder = LockClient::builder().connect_timeout(LONG).tls_ca(ca);
        let error = builder.clone().connect(&server.tls_url()).await;
        let error = error.expect_err(why);
        assert!(format!("{error:#}").contains(why), "{host}: {error}");
        let is_refused = matches!(error, LockError::Refused { .. });
        assert_eq!(is_refused, why.contains("name"), "{host}: {error:?}");
        if host == "localhost" {
            let url = server.tls_url().replace("127.0.0.1", host);
            builder.connect(&url).await.expect("its name");
        }
    }
}

#[tokio::test]
async fn a_cluster_that_announces_addresses_without_a_certificate_is_refused_with_the_way_out() {
    let authority = Arc::new(Authority::for_host("localhost"));
    let node = RedisServer::builder()
        .tls_of(&authority)
        .replicates_by_tls()
        .cluster_node(LONG)
        .config("tls-cluster", "yes")
        .config("cluster-announce-ip", "127.0.0.1")
        .start();
    node.serve_slots(0..=16383).await;
    let url = format!("rediss-cluster://localhost:{}", node.tls_port());
    let builder = LockClient::builder()
        .connect_timeout(LONG)
        .tls_ca(authority.ca_pem());
    let text = assert_refused(builder.clone().connect(&url).await, "addresses");
    for option in [
        "`cluster-announce-hostname`",
        "`cluster-preferred-endpoint-type hostname`",
    ] {
        assert!(text.contains(option), "{text}");
    }
    for (option, value) in [
        ("cluster-announce-hostname", "localhost"),
        ("cluster-preferred-endpoint-type", "hostname"),
    ] {
        node.config_set(option, value).await;
    }
    let client = builder.connect(&url).await.expect("it announces its name");
    let guard = client.lock("k").acquire().await.expect("free");
    guard.release().await.expect("held");
}

/// A server without TLS must not receive a secret.
#[tokio::test]
async fn nothing_is_sent_in_plain_text_where_tls_is_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let heard = tokio::spawn(async move {
        let mut heard = Vec::new();
        for answer in [&b"-ERR what?\r\n"[..], b"+OK\r\n", b""] {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut bytes = vec![0; 4096];
            let length = stream.read(&mut bytes).await.expect("readable");
            bytes.truncate(length);
            heard.push(bytes);
            let _ = stream.write_all(answer).await;
        }
        heard
    });
    for _ in 0..3 {
        let url = format!("rediss://user:Pa55w0rd@{address}/");
        let builder = LockClient::builder().connect_timeout(Duration::from_secs(5));
        assert_unavailable(builder.connect(&url).await, "it speaks no TLS");
    }
    let heard = within(LONG, "each attempt connects once", heard).await;
    for bytes in heard.expect("no panic") {
        // The first bytes of a TLS handshake.
        assert_eq!(bytes[..2], [0x16, 0x03], "{bytes:?}");
        let text = String::from_utf8_lossy(&bytes);
        let is_secret = text.contains("Pa55w0rd") || text.contains("HELLO");
        assert!(!is_secret, "{text}");
    }
}
