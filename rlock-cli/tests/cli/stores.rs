//! Every kind of URL.

use rlock_testkit::{RedisCluster, RedisServer, Trio};

use crate::common::{Running, rlock, run, start};

/// One run holds the lock, another does not get it, a third waits for it.
async fn excludes(url: &str, options: &[&str]) {
    let script = ["--", "sh", "-c", "echo held; read -r line"];
    let words = [&["run", "-k", "a", "-k", "b"], options, &script].concat();
    let mut holder = start(url, &words);
    holder.expect("held").await;
    let second = [&["run", "-n", "-k", "b"], options, &["--", "echo", "ran"]].concat();
    let refused = run(url, &second).await;
    assert_eq!(refused.code, Some(75), "{url}: {refused:?}");
    let third = [&["run", "-v", "-k", "b"], options, &["--", "echo", "ran"]].concat();
    let waiter = start(url, &third);
    waiter.logs("waiting").await;
    holder.send("");
    let ended = holder.end().await;
    assert_eq!(ended.code, Some(0), "{url}: {ended:?}");
    let ran = waiter.end().await;
    assert_eq!(
        (ran.code, &*ran.output),
        (Some(0), &["ran".to_owned()][..]),
        "{url}: {ran:?}"
    );
    let words = [&["wait", "a", "--wait", "10s"], options].concat();
    assert_eq!(run(url, &words).await.code, Some(0), "{url}");
}

#[tokio::test]
async fn a_unix_socket() {
    excludes(&RedisServer::start().unix_url(), &[]).await;
}

#[tokio::test]
async fn a_server_with_a_password() {
    excludes(
        &RedisServer::builder().password("secret").start().url(),
        &[],
    )
    .await;
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
async fn sentinels() {
    let trio = Trio::start().await;
    excludes(&trio.url(), &[]).await;
}

#[tokio::test]
async fn a_cluster() {
    let cluster = RedisCluster::start().await;
    excludes(&cluster.url(), &[]).await;
}

#[tokio::test]
async fn a_quorum() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let urls = servers.each_ref().map(RedisServer::url);
    excludes(&urls.join(" "), &[]).await;
    let [one, two, three] = urls.each_ref().map(String::as_str);
    excludes("unused:", &["--url", one, "--url", two, "--url", three]).await;
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
