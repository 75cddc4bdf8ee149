//! Requests that are cancelled or have to load a script, while other requests are in flight.

use rlock_testkit::{
    RedisServer,
    simultaneous::{self, acquire_all},
};

use crate::common::{LONG, assert_nothing_left, client, connect_with, fence, rounds};

/// A token as the server generates it.
const COUNTED: &str = "1762345678900100";

/// A cancelled request may just be leaving, and its release comes from another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cancelled_on_its_way_out_is_not_overtaken_by_its_release() {
    let server = RedisServer::start();
    let client = connect_with(LONG, &server.url()).await;
    let keys: Vec<_> = (0..64).map(|n| format!("k{n}")).collect();
    for key in &keys {
        let fence = fence(key);
        let () = server.command(&["SET", &fence, COUNTED]).await;
    }
    simultaneous::cancel_while_sending(&client, &keys, rounds(200)).await;
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn two_simultaneous_calls_load_a_script_that_the_server_has_lost() {
    let server = RedisServer::start();
    let client = client(&server).await;
    for round in 0..5 {
        let keys = [format!("one-{round}"), format!("other-{round}")];
        server.script_flush().await;
        let guards = acquire_all(&client, &keys).await;
        server.script_flush().await;
        simultaneous::release_all(guards).await;
    }
    assert_nothing_left(&server).await;
}
