//! Bounds on the time that the command takes. `scripts/test-all timing` runs them one after another, because they need a
//! quiet machine.
//!
//! Each is marked `#[ignore = "scripts/test-all timing"]`.

use std::time::{Duration, Instant};

use rlock_testkit::RedisServer;

use crate::{
    common::{hold, start},
    holders::client,
};

#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn a_paused_holder_delays_no_time_out() {
    const WAIT: Duration = Duration::from_millis(800);
    let server = RedisServer::start();
    let mut holder = hold(&server, &["-k", "order:42"]).await;
    holder.stop();
    let client = client(&server).await;
    let began = Instant::now();
    let error = client.lock("order:42").wait(WAIT).acquire().await;
    let error = error.expect_err("taken");
    assert!(error.is_contention() && error.holder().is_none(), "{error}");
    let took = began.elapsed();
    assert!(took < WAIT * 3, "{took:?}");
}

#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn after_a_loss_to_a_dead_server_rlock_ends_with_its_command() {
    let server = RedisServer::start();
    let script = "trap 'echo TERM; exit 0' TERM; echo held; while :; do sleep 0.05; done";
    let words = ["run", "-k", "a", "--lease", "3s", "--", "sh", "-c", script];
    let mut running = start(&server, &words);
    running.expect("held").await;
    server.kill();
    running.expect("TERM").await;
    let stopped = Instant::now();
    running.end().await.exits(124);
    let took = stopped.elapsed();
    assert!(took < Duration::from_millis(1500), "{took:?}");
}
