//! Locks over TLS.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rlock_core::{LockClient, LockError};
use rlock_testkit::{RedisCluster, RedisServer, RedisServerBuilder, Worker, within};
use tokio::{io::AsyncReadExt, net::TcpListener};

const LONG: Duration = Duration::from_secs(20);

/// Returns the output of a process that trusts the certificates in `roots`.
async fn connect_trusting(roots: &Path, url: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_connect"));
    let mut worker = Worker::start(command.arg(url).env("SSL_CERT_FILE", roots));
    worker.line(LONG).await.expect("a line")
}

/// An authority in its own directory, which signs server certificates.
struct Authority(PathBuf);

impl Authority {
    fn new(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&directory).expect("a directory");
        Self(directory)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Starts a server with a certificate for `host`, changed by `changed`.
    fn server(&self, host: &str, changed: impl FnOnce(&mut CertificateParams)) -> RedisServer {
        self.builder(host, changed).start()
    }

    fn builder(
        &self,
        host: &str,
        changed: impl FnOnce(&mut CertificateParams),
    ) -> RedisServerBuilder {
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
        let files = [
            ("tls-ca-cert-file", "ca.pem", ca),
            ("tls-cert-file", "server.pem", certificate),
            ("tls-key-file", "server.key", key.serialize_pem()),
        ];
        let mut builder = RedisServer::builder().tls();
        for (option, file, content) in files {
            let path = self.path(file);
            fs::write(&path, content).expect("writable");
            builder = builder.config(option, &format!("\"{}\"", path.display()));
        }
        builder
    }

    async fn connect(&self, url: &str) -> String {
        connect_trusting(&self.path("ca.pem"), url).await
    }
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
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let server = RedisServer::builder().tls().start();
    let error = LockClient::connect(&server.tls_url())
        .await
        .expect_err("unknown issuer");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    let text = error.to_string();
    for part in ["127.0.0.1", "certificate", "`tls_ca`", "`SSL_CERT_FILE`"] {
        assert!(text.contains(part), "{text}");
    }
    // Nothing changes while the client waits.
    let started = Instant::now();
    let waits = LockClient::builder().connect_wait(LONG);
    let error = waits.connect(&server.tls_url()).await;
    let error = error.expect_err("unknown issuer");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    assert!(started.elapsed() < LONG / 2, "{:?}", started.elapsed());
    let other = RedisServer::builder().tls().start();
    let said = connect_trusting(other.ca_path(), &server.tls_url()).await;
    assert!(
        said.starts_with("failed: ") && said.contains("certificate"),
        "{said}"
    );
}

#[tokio::test]
async fn a_certificate_that_is_in_order_is_accepted_by_each_of_its_names() {
    let authority = Authority::new("in-order");
    let server = authority.server("127.0.0.1", |_| {});
    assert_eq!(
        authority.connect(&server.tls_url()).await,
        "locked 2 time(s)"
    );
    let server = authority.server("localhost", |_| {});
    let url = server.tls_url().replace("127.0.0.1", "localhost");
    assert_eq!(authority.connect(&url).await, "locked 2 time(s)");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let authority = Authority::new("another-host");
    for host in ["localhost", "127.0.0.2", "redis.example"] {
        let server = authority.server(host, |_| {});
        let said = authority.connect(&server.tls_url()).await;
        assert!(said.starts_with("failed: "), "{host}: {said}");
        assert!(said.contains("certificate not valid for name"), "{said}");
    }
}

#[tokio::test]
async fn a_certificate_out_of_its_time_is_refused() {
    let authority = Authority::new("out-of-time");
    let server = authority.server("127.0.0.1", |params| {
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    let said = authority.connect(&server.tls_url()).await;
    assert!(
        said.starts_with("failed: ") && said.contains("expired"),
        "{said}"
    );
    let server = authority.server("127.0.0.1", |params| {
        params.not_before = date_time_ymd(2200, 1, 1);
        params.not_after = date_time_ymd(2201, 1, 1);
    });
    let said = authority.connect(&server.tls_url()).await;
    assert!(
        said.starts_with("failed: ") && said.contains("not valid yet"),
        "{said}"
    );
}

#[tokio::test]
async fn verification_is_not_switched_off_by_the_url() {
    let server = RedisServer::builder().tls().start();
    for end in ["#insecure", "?insecure=true", "?ssl_cert_reqs=none"] {
        let url = format!("{}{end}", server.tls_url());
        LockClient::connect(&url).await.expect_err(end);
    }
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
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
        }
        heard
    });
    for _ in 0..3 {
        let url = format!("rediss://user:Pa55w0rd@{address}/");
        let builder = LockClient::builder().connect_timeout(Duration::from_secs(5));
        let error = builder.connect(&url).await.expect_err("it speaks no TLS");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    }
    for bytes in within(LONG, "each attempt connects once", heard)
        .await
        .expect("no panic")
    {
        // The first bytes of a TLS handshake.
        assert_eq!(bytes[..2], [0x16, 0x03], "{bytes:?}");
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            !text.contains("Pa55w0rd") && !text.contains("HELLO"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_not_used_where_tls_is_asked_for() {
    let server = RedisServer::start();
    let mut watch = server.watch_commands().await;
    let url = server.url().replace("redis://", "rediss://");
    let builder = LockClient::builder().connect_timeout(Duration::from_secs(3));
    let error = builder.connect(&url).await.expect_err("it speaks no TLS");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert_eq!(watch.count().await, 0, "{:?}", watch.seen().await);
}

#[tokio::test]
async fn the_nodes_of_a_cluster_are_found_and_spoken_to_by_tls() {
    let authority = Authority::new("cluster");
    let builder = authority
        .builder("127.0.0.1", |params| {
            // With the same name they would count as the authority.
            let name = &mut params.distinguished_name;
            name.push(DnType::CommonName, "a node");
        })
        .config("tls-cluster", "yes")
        .config("tls-replication", "yes");
    let cluster = RedisCluster::of(&builder).await;
    for protocol in ["", "?protocol=resp2"] {
        let url = format!("{}{protocol}", cluster.tls_url());
        assert_eq!(authority.connect(&url).await, "locked 2 time(s)");
    }
    let error = LockClient::connect(&cluster.tls_url())
        .await
        .expect_err("unknown issuer");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
}
