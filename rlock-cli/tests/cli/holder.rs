//! Errors that name the process that holds a lock.

use std::time::{Duration, Instant};

use rlock_core::{LockClient, LockError};
use rlock_testkit::RedisServer;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::hold;

const WAIT: Duration = Duration::from_millis(800);

/// Waits for the lock in several tasks, of which only the first asks the server.
async fn refusals(client: &LockClient) -> Vec<LockError> {
    let waits = (0..4).map(|_| {
        let lock = client.lock("order:42").wait(WAIT);
        tokio::spawn(async move { lock.acquire().await.expect_err("taken") })
    });
    let mut refusals = Vec::new();
    for wait in waits.collect::<Vec<_>>() {
        refusals.push(wait.await.expect("no panic"));
    }
    refusals
}

#[tokio::test]
async fn a_time_out_names_the_process_that_holds_the_lock() {
    let server = RedisServer::start();
    let running = hold(&server, &["-k", "order:42"]).await;
    let client = LockClient::connect(&server.url()).await.expect("it runs");
    for error in refusals(&client).await {
        let holder = error.holder().expect("it replies");
        let service = holder.service.as_deref().expect("it is named");
        assert!(service.starts_with("rlock/"), "{service}");
        assert_eq!(holder.pid.cast_signed(), running.pid());
        let text = error.to_string();
        assert!(text.contains("; it is held by `rlock/"), "{text}");
        assert!(text.contains(&format!("(pid {})", running.pid())), "{text}");
    }
    // A call without a wait asks once.
    let lock = client.lock("order:42").wait(Duration::ZERO);
    let error = lock.acquire().await.expect_err("taken");
    assert!(error.holder().is_none());
}

#[tokio::test]
async fn a_paused_holder_delays_no_time_out() {
    let server = RedisServer::start();
    let running = hold(&server, &["-k", "order:42"]).await;
    let client = LockClient::connect(&server.url()).await.expect("it runs");
    let pid = Pid::from_raw(running.pid()).expect("a process");
    kill_process(pid, Signal::STOP).expect("it runs");
    let began = Instant::now();
    for error in refusals(&client).await {
        assert!(error.is_contention() && error.holder().is_none(), "{error}");
    }
    assert!(began.elapsed() < WAIT * 3, "{:?}", began.elapsed());
    let info = client.inspect("order:42").await.expect("a reply");
    assert_eq!(info.expect("held").holder, None);
    kill_process(pid, Signal::CONT).expect("it runs");
}
