//! Clients whose options come from the environment.

use std::{env, time::Duration};

use rlock_core::{LockClient, LockError};
use rlock_testkit::RedisServer;

use crate::common::{alone::is_alone_with, ms, timed};

#[tokio::test]
async fn a_client_of_the_environment_has_its_store_prefix_lease_and_wait() {
    const TEST: &str = "a_client_of_the_environment_has_its_store_prefix_lease_and_wait";
    let server = env::var_os("RLOCK_URL").is_none().then(RedisServer::start);
    let url = server.as_ref().map_or_else(String::new, RedisServer::url);
    let variables = [
        ("RLOCK_URL", url.as_str()),
        ("RLOCK_PREFIX", "jobs:"),
        ("RLOCK_LEASE", "1h"),
        ("RLOCK_WAIT", "200ms"),
    ];
    if !is_alone_with(module_path!(), TEST, &variables) {
        let mut fences = server.expect("started here").keys("*").await;
        fences.sort();
        let both = ["jobs:{k}:fence", "mine:{k}:fence"];
        assert_eq!(fences, both, "the child has locked and released `k`");
        return;
    }
    let client = LockClient::from_env().await.expect("the server is up");
    let guard = client.lock("k").acquire().await.expect("free");
    assert!(guard.valid_for() > Duration::from_secs(3_000), "{guard:?}");
    let (refused, took) = timed(client.lock("k").acquire()).await;
    assert!(
        matches!(refused, Err(LockError::Timeout { .. })),
        "{refused:?}"
    );
    assert!(took >= ms(200) && took < ms(5_000), "{took:?}");

    // The later call wins.
    let builder = LockClient::builder().default_wait(Duration::from_secs(60));
    let builder = builder.env().expect("valid").prefix("mine:");
    let url = env::var("RLOCK_URL").expect("set");
    let other = builder.connect(&url).await;
    let other = other.expect("the server is up");
    drop(other.lock("k").acquire().await.expect("another prefix"));
    guard.release().await.expect("held");
    other.shutdown().await.expect("released");
}

#[tokio::test]
async fn without_a_url_in_the_environment_no_client_is_made() {
    let test = "without_a_url_in_the_environment_no_client_is_made";
    if !is_alone_with(module_path!(), test, &[("RLOCK_LEASE", "1 fortnight")]) {
        return;
    }
    let refused = LockClient::from_env()
        .await
        .expect_err("no URL")
        .to_string();
    assert!(refused.contains("(not set) for `RLOCK_URL`"), "{refused}");
    let refused = LockClient::builder()
        .env()
        .expect_err("no unit")
        .to_string();
    assert!(
        refused.contains("\"1 fortnight\" for `RLOCK_LEASE`"),
        "{refused}"
    );
}
