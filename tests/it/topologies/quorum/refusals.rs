//! Lists of URLs that make no quorum, and requests that its servers refuse.

use rlock_core::{LockClient, StoreUrl};
use rlock_testkit::{Authority, RedisServer};

use crate::common::{LASTING, LONG, assert_invalid, assert_refused, connect, name};

#[tokio::test]
async fn lists_that_make_no_quorum_are_refused_with_the_way_out() {
    let many: Vec<String> = (1..=33)
        .map(|port| format!("redis://127.0.0.1:{port}/"))
        .collect();
    let cases: Vec<(Vec<String>, &str)> = vec![
        (vec![], "three, or five"),
        (many, "32 servers at most"),
        (
            vec!["redis://u:s3cret@h:1/".into(), "redis://h:1/2".into()],
            "`h:1`, twice",
        ),
        (vec!["memory:".into()], "single servers"),
        (vec!["redis-cluster://u:s3cret@h/".into()], "single servers"),
        (
            vec![
                "redis://u:s3cret@h:1/".into(),
                "redis://u:s3cret@h:99999999/".into(),
            ],
            "`redis:…`",
        ),
    ];
    for (urls, hint) in cases {
        let outcome = LockClient::connect(StoreUrl::quorum(urls)).await;
        assert!(!format!("{outcome:?}").contains("s3cret"), "{outcome:?}");
        let text = assert_invalid(outcome, hint);
        assert!(text.contains(hint), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn options_that_a_quorum_has_no_use_for_are_refused() {
    let builder = LockClient::builder;
    let authority = Authority::new();
    for (builder, hint) in [
        (builder().tls_ca("no certificate"), "PEM"),
        (builder().tls_ca(authority.ca_pem()), "does not use TLS"),
        (builder().default_lease(LASTING * 3000), "`default_lease`"),
        (builder().wait_for_replicas(1, LONG), "quorum"),
    ] {
        let quorum = StoreUrl::quorum(["redis://127.0.0.1:1/"]);
        let said = assert_invalid(builder.connect(quorum).await, hint);
        assert!(said.contains(hint), "{said}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_counts_as_one_that_replied() {
    let servers = [0; 3].map(|_| RedisServer::start());
    let client = connect(StoreUrl::quorum(servers.iter().map(RedisServer::url))).await;
    let key = name("k");
    for server in &servers[1..] {
        let () = server.command(&["SET", &key, "text"]).await;
    }
    let said = assert_refused(client.lock("k").try_acquire().await, "refused");
    for part in [
        "3 of 3 servers replied, 2 of them with a refusal, and 2 have to agree",
        &format!("{}: the key `{key}` holds a string", servers[2].address()),
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("script"), "{said}");
}
