//! `rlock extend`: extends a lock by its token.

use std::time::Duration;

use rlock_testkit::RedisServer;

use crate::{
    common::{Outcome, run},
    holders::{client, objects},
};

async fn extend(server: &RedisServer, words: &[&str]) -> Outcome {
    let words = [&["extend", "upload:7", "--lease", "20m"], words].concat();
    run(&server, &words).await
}

#[tokio::test]
async fn a_detached_lock_is_extended_and_released_by_its_token() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let free = extend(&server, &["--token", "1", "--json"]).await.exits(1);
    assert!(free.log.contains("it is free"), "{free:?}");
    assert_eq!(objects(&free)[0]["extended"], false);

    let lock = client.lock("upload:7").lease(Duration::from_secs(900));
    let token = lock.acquire().await.expect("free").detach();
    let token = token.expect("held").to_string();
    let wrong = extend(&server, &["--token", "1"]).await.exits(1);
    assert!(wrong.log.contains("another token than 1"), "{wrong:?}");
    let extended = extend(&server, &["--token", &token]).await.exits(0);
    assert_eq!(
        extended.output,
        ["lock `upload:7`: extended for 20m00s from now on"]
    );
    assert!(server.pttl("lock:{upload:7}").await > 1_000_000);
    let words = ["release", "upload:7", "--token", &token, "--yes"];
    run(&server, &words).await.exits(0);
    assert!(lock.try_acquire().await.expect("a reply").is_some());
}
