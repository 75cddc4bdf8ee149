//! Certificates and authorities in the options of a client.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rlock_core::{ClientCertificate, LockClient, LockClientBuilder, LockError, StoreUrl};
use rlock_testkit::{
    Authority, MASTERS, RedisCluster, RedisServer, RedisServerBuilder, eventually,
};

use crate::common::{LASTING, LONG, assert_refused, assert_unavailable, builder};

/// A server that asks clients for a certificate of this authority.
fn asking(authority: &Arc<Authority>) -> RedisServerBuilder {
    let server = RedisServer::builder().tls_of(authority);
    server.asks_for_certificates()
}

fn trusting(authority: &Authority) -> LockClientBuilder {
    builder().tls_ca(authority.ca_pem())
}

/// Acquires and releases a lock over both connections.
async fn assert_works(client: &LockClient) {
    let lock = client.lock("k").lease(LASTING);
    let guard = lock.acquire().await.expect("free");
    let inner = guard.scope(lock.acquire()).await.expect("enters");
    inner.release().await.expect("held");
    guard.release().await.expect("held");
    let blocking = std::thread::scope(|scope| {
        let held = scope.spawn(|| lock.acquire_blocking().map(drop));
        held.join().expect("no panic")
    });
    blocking.expect("free");
}

/// Checks the error of a client that does not trust the server.
fn assert_untrusted(outcome: Result<LockClient, LockError>) {
    let said = assert_refused(outcome, "another's");
    assert!(
        said.contains("certificate") && said.contains("`tls_ca`"),
        "{said}"
    );
}

/// Asserts that servers that ask for certificates let in only clients that show one and trust their authority. Returns such a client.
pub(crate) async fn assert_lets_in_shown_certificates_only(
    store: &StoreUrl,
    authority: &Authority,
) -> LockClient {
    let (certificate, key) = authority.client_certificate("billing");
    let shows_it = |builder: LockClientBuilder| {
        builder.tls_client_certificate(certificate.clone(), key.clone())
    };
    let client = shows_it(trusting(authority)).connect(store).await;
    let client = client.expect("it is let in");
    assert_works(&client).await;
    let shows_none = trusting(authority).connect_timeout(Duration::from_secs(5));
    let said = assert_unavailable(shows_none.connect(store).await, "no certificate");
    assert!(said.contains("127.0.0.1"), "{said}");
    let stranger = shows_it(trusting(&Authority::new()));
    assert_untrusted(stranger.connect(store).await);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_known_by_the_authority_that_the_client_is_given() {
    let (authority, other) = (Arc::new(Authority::new()), Authority::new());
    let server = RedisServer::builder().tls_of(&authority).start();
    for protocol in ["", "?protocol=resp2"] {
        let url = format!("{}{protocol}", server.tls_url());
        let client = trusting(&authority).connect(&url).await;
        assert_works(&client.expect("it is trusted")).await;
    }
    assert_untrusted(trusting(&other).connect(&server.tls_url()).await);
    // One of several authorities is enough.
    let both = format!("{}{}", other.ca_pem(), authority.ca_pem());
    let client = builder().tls_ca(both);
    client.connect(&server.tls_url()).await.expect("trusted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_for_a_certificate_is_shown_the_clients_own() {
    let authority = Arc::new(Authority::new());
    let server = asking(&authority).start();
    let client = assert_lets_in_shown_certificates_only(&server.tls_url().into(), &authority).await;
    // And again over new connections.
    assert!(server.kill_all_clients().await > 0);
    assert_works(&client).await;

    let (certificate, key) = Authority::new().client_certificate("billing");
    let forged = trusting(&authority).connect_timeout(Duration::from_secs(5));
    let forged = forged.tls_client_certificate(certificate, key);
    assert_unavailable(forged.connect(&server.tls_url()).await, "another's");
}

/// The server refuses the certificate of another authority as it refuses one that has expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_shows_the_present_certificate_of_its_provider_and_keeps_its_holds() {
    let authority = Arc::new(Authority::new());
    let server = asking(&authority).start();
    let own = |authority: &Authority| {
        let (certificate, key) = authority.client_certificate("billing");
        Some(ClientCertificate::new(certificate, key))
    };
    let present = Arc::new((Mutex::new(own(&authority)), AtomicU32::new(0)));
    let put = |own| *present.0.lock().expect("no panic") = own;
    let asked = || present.1.load(Ordering::SeqCst);
    let provider = Arc::clone(&present);
    let builder = trusting(&authority).tls_client_certificates(move || {
        provider.1.fetch_add(1, Ordering::SeqCst);
        let own = provider.0.lock().expect("no panic").clone();
        async move { own.ok_or("it is being replaced") }
    });
    for url in [
        server.tls_url(),
        format!("{}?protocol=resp2", server.tls_url()),
    ] {
        put(own(&authority));
        let client = builder.clone().connect(&url).await.expect("let in");
        let held = client.lock("held").lease(LASTING).acquire().await;
        let held = held.expect("free");
        for unusable in [
            own(&Authority::new()),
            Some(ClientCertificate::new("no PEM", "no PEM")),
            None,
        ] {
            put(unusable);
            let before = asked();
            server.kill_all_clients().await;
            eventually(LONG, "the provider is asked", async || asked() > before + 3).await;
            put(own(&authority));
            let lock = client.lock("other").lease(LASTING).wait(LONG);
            let other = lock.acquire().await.expect("let in again");
            other.release().await.expect("held");
        }
        assert!(held.is_valid());
        held.release().await.expect("the server has kept it");
    }
    put(None);
    let text = assert_unavailable(builder.connect(&server.tls_url()).await, "none is there");
    for part in [
        "the provider of client certificates failed",
        "it is being replaced",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nodes_of_a_cluster_are_known_by_the_authority_and_shown_the_certificate() {
    let authority = Arc::new(Authority::new());
    let node = asking(&authority)
        .replicates_by_tls()
        .config("tls-cluster", "yes");
    let cluster = RedisCluster::of(&node).await;
    for protocol in ["", "?protocol=resp2"] {
        let url = format!("{}{protocol}", cluster.tls_url()).into();
        let client = assert_lets_in_shown_certificates_only(&url, &authority).await;
        for master in 0..MASTERS {
            let lock = client.lock(cluster.key_at(master, "k").await);
            let guard = lock.acquire().await.expect("free");
            guard.release().await.expect("held");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_lets_in_only_clients_that_show_a_certificate() {
    let authority = Arc::new(Authority::new());
    let three = [(); 3].map(|()| asking(&authority).start());
    let quorum = StoreUrl::quorum(three.each_ref().map(RedisServer::tls_url));
    assert_lets_in_shown_certificates_only(&quorum, &authority).await;
}

/// Checks that the error names the option, and shows neither its value nor anything secret.
fn assert_invalid(outcome: Result<LockClient, LockError>, option: &str, reason: &str) {
    let error = outcome.expect_err(option);
    let is_of = matches!(error, LockError::InvalidOption { option: of, .. } if of == option);
    assert!(is_of, "{error:?}");
    let said = format!("{error:#}");
    assert!(said.contains(reason), "{said}");
    for shown in [said, format!("{error:?}")] {
        assert!(
            !shown.contains("S3CRET") && !shown.contains("MII"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn an_unreadable_certificate_is_refused_before_anything_is_sent() {
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----";
    let authority = Authority::new();
    let (certificate, key) = authority.client_certificate("billing");
    let (_, other_key) = authority.client_certificate("other");
    let (cut, cut_key) = (&certificate[..300], &key[..100]);
    let garbage = format!("{CERTIFICATE}\nS3CRETS3CRET\n-----END CERTIFICATE-----\n");
    let check = async |builder: LockClientBuilder, option, reason| {
        let shown = format!("{builder:?}");
        assert!(
            !shown.contains("S3CRET") && !shown.contains("MII"),
            "{shown}"
        );
        // No server listens on this port.
        let outcome = builder.connect("rediss://127.0.0.1:1/").await;
        assert_invalid(outcome, option, reason);
    };
    for broken in ["", "S3CRET", cut, &key] {
        check(LockClient::builder().tls_ca(broken), "tls_ca", CERTIFICATE).await;
    }
    check(LockClient::builder().tls_ca(garbage), "tls_ca", "").await;
    for (certificate, key, reason) in [
        ("S3CRET", &*key, CERTIFICATE),
        (cut, &key, CERTIFICATE),
        (&certificate, "S3CRET", KEY),
        (&certificate, cut_key, KEY),
        (&certificate, &certificate, KEY),
        (
            &certificate,
            &other_key,
            "does not belong to the certificate",
        ),
    ] {
        let builder = LockClient::builder().tls_client_certificate(certificate, key);
        check(builder, "tls_client_certificate", reason).await;
    }
}

#[tokio::test]
async fn certificates_where_no_tls_is_spoken_are_refused() {
    let authority = Authority::new();
    let (certificate, key) = authority.client_certificate("billing");
    let own = ClientCertificate::new(certificate.clone(), key.clone());
    let provided = LockClient::builder().tls_client_certificates(move || {
        let own = own.clone();
        async move { Ok::<_, std::io::Error>(own) }
    });
    let own = LockClient::builder().tls_client_certificate(certificate, key);
    for (builder, option) in [
        (trusting(&authority), "tls_ca"),
        (own, "tls_client_certificate"),
        (provided, "tls_client_certificates"),
    ] {
        for url in [
            "redis://127.0.0.1:1/",
            "redis-sentinel://127.0.0.1:1/orders",
            "unix:///nowhere.sock",
            "memory:",
        ] {
            assert_invalid(builder.clone().connect(url).await, option, "rediss://");
        }
        let mixed = ["rediss://127.0.0.1:1/", "redis://127.0.0.1:2/"];
        assert_invalid(
            builder.clone().connect(StoreUrl::quorum(mixed)).await,
            option,
            "",
        );
        builder.in_memory().expect_err("no connection");
    }
}
