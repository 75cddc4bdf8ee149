//! Kinds of URLs that the command reads itself, or whose secrets it needs.

use std::time::Duration;

use rlock_testkit::{Proxy, RedisServer};

use crate::common::{Running, rlock, run, run_until, start};

/// Starts a run that holds two locks, until its input ends.
async fn holding(url: &str, options: &[&str]) -> Running {
    let script = "trap '' TERM; echo held; read -r line; echo $line";
    let words = ["run", "-k", "a", "-k", "b", "--kill-after", "1h"];
    let words = [&words[..], options, &["--", "sh", "-c", script]].concat();
    let mut holder = start(url, &words);
    holder.expect("held").await;
    holder
}

/// Asserts that while a run holds the lock, another one does not get it, and a third one waits for it.
async fn excludes(url: &str, options: &[&str]) {
    let holder = holding(url, options).await;
    let second = [&["run", "-n", "-k", "b"], options, &["--", "echo", "ran"]].concat();
    run(url, &second).await.exits(75);
    let third = [&["run", "-v", "-k", "b"], options, &["--", "echo", "ran"]].concat();
    let waiter = start(url, &third);
    waiter.logs("waiting").await;
    holder.end().await.exits(0);
    let ran = waiter.end().await;
    assert_eq!(ran.output, ["ran"], "{url}: {ran:?}");
    let words = [&["wait", "a", "--wait", "60s"], options].concat();
    run(url, &words).await.exits(0);
}

/// Lists and inspects the locks of a run, and takes them from it.
async fn shows(url: &str) {
    let holder = holding(url, &[]).await;
    let pid = holder.pid();
    for words in [&["ls"][..], &["ls", "--scan"]] {
        let listed = run_until(url, words, &format!(" {pid} ")).await;
        assert_eq!(listed.output.len(), 2, "{url} {words:?}: {listed:?}");
    }
    let inspected = run_until(url, &["inspect", "a"], &format!("(pid {pid})")).await;
    assert!(inspected.output[1].starts_with("holder "), "{inspected:?}");
    run(url, &["release", "b", "--force", "--yes"])
        .await
        .exits(0);
    holder.end().await.exits(124);
}

#[tokio::test]
async fn a_server_by_tls() {
    let server = RedisServer::builder().tls().start();
    let mut command = rlock(&server.tls_url(), &["run", "-k", "a", "--", "echo", "ran"]);
    command
        .env("SSL_CERT_FILE", server.ca_path())
        .env_remove("SSL_CERT_DIR");
    let outcome = Running::start(command).end().await.exits(0);
    assert_eq!(outcome.output, ["ran"], "{outcome:?}");
}

#[tokio::test]
async fn a_quorum() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let urls = servers.each_ref().map(RedisServer::url);
    let [one, two, three] = urls.each_ref().map(String::as_str);
    excludes("unused:", &["--url", one, "--url", two, "--url", three]).await;
    shows(&urls.join(" ")).await;
    servers[0].kill();
    excludes(&urls.join(" "), &[]).await;
    servers[1].kill();
    run(
        &urls.join(" "),
        &["run", "-n", "-k", "a", "--", "echo", "ran"],
    )
    .await
    .exits(69);
}

#[tokio::test]
async fn a_slow_store_needs_a_longer_response_time_out() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    proxy.delay_replies(Duration::from_millis(300));
    let words = ["run", "-n", "-k", "a", "--", "echo", "ran"];
    let short = ["--response-timeout", "100ms"];
    let outcome = run(&proxy, &[&short, &words[..]].concat()).await.exits(69);
    assert!(outcome.log.contains("no reply within 100ms"), "{outcome:?}");
    // The first command may have got the lock, and had no time to release it.
    server.flush_all().await;
    let outcome = run(&proxy, &words).await.exits(0);
    assert_eq!(outcome.output, ["ran"]);
}
