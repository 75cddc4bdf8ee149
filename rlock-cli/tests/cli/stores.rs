//! Kinds of URLs that the command reads itself, or whose secrets it needs.

use rlock_testkit::RedisServer;

use crate::common::{Running, rlock, run, run_until, start};

/// Starts a run that holds two locks, until its input ends.
async fn holding(url: &str, options: &[&str]) -> Running {
    let script = ["--", "sh", "-c", "echo held; read -r line; echo $line"];
    let words = [&["run", "-k", "a", "-k", "b"], options, &script].concat();
    let mut holder = start(url, &words);
    holder.expect("held").await;
    holder
}

/// Asserts that while a run holds the lock, another one does not get it, and a third one waits for it.
async fn excludes(url: &str, options: &[&str]) {
    let holder = holding(url, options).await;
    let second = [&["run", "-n", "-k", "b"], options, &["--", "echo", "ran"]].concat();
    let refused = run(url, &second).await;
    assert_eq!(refused.code, Some(75), "{url}: {refused:?}");
    let third = [&["run", "-v", "-k", "b"], options, &["--", "echo", "ran"]].concat();
    let waiter = start(url, &third);
    waiter.logs("waiting").await;
    let ended = holder.end().await;
    assert_eq!(ended.code, Some(0), "{url}: {ended:?}");
    let ran = waiter.end().await;
    assert_eq!(ran.output, ["ran"], "{url}: {ran:?}");
    let words = [&["wait", "a", "--wait", "60s"], options].concat();
    assert_eq!(run(url, &words).await.code, Some(0), "{url}");
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
    let forced = run(url, &["release", "b", "--force", "--yes"]).await;
    assert_eq!(forced.code, Some(0), "{url}: {forced:?}");
    assert_eq!(holder.end().await.code, Some(124), "{url}");
}

#[tokio::test]
async fn a_server_by_a_unix_socket_and_with_a_password() {
    let server = RedisServer::builder().password("secret").start();
    excludes(&server.unix_url(), &[]).await;
    excludes(&server.url(), &[]).await;
}

#[tokio::test]
async fn a_server_by_tls() {
    let server = RedisServer::builder().tls().start();
    let with_roots = |words: &[&str], roots: Option<&std::path::Path>| {
        let mut command = rlock(&server.tls_url(), words);
        match roots {
            Some(roots) => command
                .env("SSL_CERT_FILE", roots)
                .env_remove("SSL_CERT_DIR"),
            None => command
                .env_remove("SSL_CERT_FILE")
                .env_remove("SSL_CERT_DIR"),
        };
        Running::start(command)
    };
    let words = ["run", "-k", "a", "--", "echo", "ran"];
    let trusting = with_roots(&words, Some(server.ca_path())).end().await;
    assert_eq!(trusting.code, Some(0), "{trusting:?}");
    // The default wait is not for a server that is not trusted.
    let other = with_roots(&words, None).end().await;
    assert_eq!(other.code, Some(69), "{other:?}");
    assert!(other.output.is_empty(), "{other:?}");
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
    let outcome = run(
        &urls.join(" "),
        &["run", "-n", "-k", "a", "--", "echo", "ran"],
    )
    .await;
    assert_eq!(outcome.code, Some(69), "no majority: {outcome:?}");
}
