//! Clients whose options come from environment variables.

use std::{env, time::Duration};

use rlock_core::{LockClient, LockError, StoreUrl};
use rlock_testkit::RedisServer;

use crate::common::alone::is_alone_with;

#[tokio::test]
async fn a_client_of_the_environment_has_its_store_prefix_lease_wait_and_time_out() {
    const TEST: &str = "a_client_of_the_environment_has_its_store_prefix_lease_wait_and_time_out";
    let server = env::var_os("RLOCK_URL").is_none().then(RedisServer::start);
    let url = server.as_ref().map_or_else(String::new, RedisServer::url);
    let variables = [
        ("RLOCK_URL", url.as_str()),
        ("RLOCK_PREFIX", "jobs:"),
        ("RLOCK_LEASE", "1h"),
        ("RLOCK_WAIT", "200ms"),
        ("RLOCK_RESPONSE_TIMEOUT", "10s"),
    ];
    if !is_alone_with(module_path!(), TEST, &variables) {
        let fences = server.expect("started here").keys("*").await;
        assert_eq!(fences, ["jobs:{k}:fence"], "the child has locked `k`");
        return;
    }
    let store = StoreUrl::from_env().expect("a URL");
    let builder = LockClient::builder().with_env().expect("valid");
    let options = format!("{builder:?}");
    assert!(options.contains("response_timeout: 10s"), "{options}");
    let client = builder.connect(store).await.expect("the server is up");
    let guard = client.lock("k").acquire().await.expect("free");
    assert!(guard.valid_for() > Duration::from_secs(3_000), "{guard:?}");
    let refused = client.lock("k").acquire().await;
    let Err(LockError::Taken { waited, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert!(waited >= Duration::from_millis(200), "{waited:?}");
    guard.release().await.expect("held");
}
