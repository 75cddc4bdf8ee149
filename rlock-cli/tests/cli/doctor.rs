//! `rlock doctor`: its findings about real servers, and its exit status.

use std::time::Duration;

use rlock_testkit::{MASTERS, Proxy, RedisCluster, RedisServer, Trio};

use crate::{
    common::{Outcome, run},
    holders::{LOCKER, objects},
};

/// Returns the marks of a check, one for each server.
fn marks(outcome: &Outcome, check: &str) -> Vec<char> {
    let lines = outcome
        .output
        .iter()
        .filter_map(|line| line.strip_prefix("  "));
    let of_check = lines.filter(|line| {
        let text = line.split_once(' ').map_or("", |(_, text)| text);
        text.strip_prefix(check)
            .is_some_and(|rest| rest.starts_with("  "))
    });
    of_check.filter_map(|line| line.chars().next()).collect()
}

const CHECKS: [&str; 10] = [
    "version",
    "eviction",
    "persistence",
    "clock",
    "scripts",
    "tracking",
    "permissions",
    "operations",
    "round trip",
    "grant",
];

#[tokio::test]
async fn a_good_server_passes_every_check() {
    let server = RedisServer::builder().config("appendonly", "yes").start();
    let outcome = run(&server, &["doctor"]).await;
    assert_eq!((outcome.code, &*outcome.log), (Some(0), ""), "{outcome:?}");
    assert_eq!(outcome.output[0], server.address());
    let expected = if major(&server).await >= 7 {
        "✓"
    } else {
        "✓!"
    };
    for check in CHECKS {
        let marks = marks(&outcome, check);
        assert_eq!(marks.len(), 1, "{check}: {outcome:?}");
        let may_be = if check == "permissions" {
            expected
        } else {
            "✓"
        };
        assert!(may_be.contains(marks[0]), "{check}: {outcome:?}");
    }
    let left = server.keys("*").await;
    let [fence] = &left[..] else {
        panic!("the fence of its own lock: {left:?}");
    };
    assert!(
        fence.starts_with("lock:{rlock:probe:") && fence.ends_with("}:fence"),
        "{fence}"
    );
    let ttl: i64 = server.command(&["TTL", fence]).await;
    assert!((1..=70).contains(&ttl), "{ttl}");
    // White space around a URL makes no quorum.
    let mut watch = server.watch_commands().await;
    let outcome = run(&format!(" {} ", server.url()), &["doctor", "--json"]).await;
    let scripts = watch.seen().await.iter();
    for call in scripts.filter(|command| command.is("EVALSHA")) {
        assert_eq!(call.words[2], "1", "some services refuse it: {call:?}");
    }
    let objects = objects(&outcome);
    assert_eq!(objects.len(), CHECKS.len(), "{outcome:?}");
    for (object, check) in objects.iter().zip(CHECKS) {
        assert_eq!(
            (&object["check"], &object["server"]),
            (&check.into(), &server.address().into())
        );
        assert!(
            object["severity"].is_string() && object["text"].is_string(),
            "{object}"
        );
    }
}

async fn major(server: &RedisServer) -> u32 {
    let info: redis::InfoDict = server.command(&["INFO", "server"]).await;
    let version: String = info.get("redis_version").expect("a version");
    version
        .split('.')
        .next()
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

#[tokio::test]
async fn a_server_that_may_evict_locks_exits_with_1() {
    let server = RedisServer::builder()
        .config("maxmemory", "64mb")
        .config("maxmemory-policy", "allkeys-lru")
        .start();
    let outcome = run(&server, &["doctor"]).await.exits(1);
    assert_eq!(marks(&outcome, "eviction"), ['✗']);
    let text = outcome.output.join("\n");
    assert!(
        text.contains("allkeys-lru may evict locks; set `maxmemory-policy noeviction`"),
        "{text}"
    );
    // Without a limit nothing is evicted yet.
    server.config_set("maxmemory", "0").await;
    let outcome = run(&server, &["doctor"]).await.exits(0);
    assert_eq!(marks(&outcome, "eviction"), ['!']);
}

/// Asserts that `doctor` finds that no lock is granted, and says what to do.
async fn assert_refuses(url: &str, word: &str, way_out: &str) {
    // The probe tries for this time to acquire a lock.
    let words = ["doctor", "--response-timeout", "2s"];
    let outcome = run(url, &words).await.exits(1);
    assert!(marks(&outcome, "grant").contains(&'✗'), "{outcome:?}");
    let text = outcome.output.join("\n");
    assert!(
        text.to_uppercase().contains(word) && text.contains(way_out),
        "{text}"
    );
    assert!(text.contains("locks are NOT safe on this store"), "{text}");
}

#[tokio::test]
async fn a_server_that_refuses_every_lock_exits_with_1_the_cause_and_a_remedy() {
    let server = RedisServer::start();
    let url = server.url();
    let quorum = [(); 2].map(|()| RedisServer::start());
    let urls = [&quorum[0], &quorum[1], &server].map(RedisServer::url);
    for (name, refuses, serves, word, way_out) in [
        ("maxmemory", "1", "0", "MEMORY", "raise `maxmemory`"),
        (
            "min-replicas-to-write",
            "1",
            "0",
            "REPLICAS",
            "`min-replicas-to-write`",
        ),
    ] {
        server.config_set(name, refuses).await;
        assert_refuses(&url, word, way_out).await;
        // A majority of the quorum grants locks, but that is one failure from an outage.
        assert_refuses(&urls.join(" "), word, way_out).await;
        server.config_set(name, serves).await;
        run(&url, &["doctor"]).await.exits(0);
    }
    server.let_saves_fail().await;
    assert_refuses(&url, "MISCONF", "it cannot save its data").await;
    server.let_saves_succeed().await;
    server.follow(&quorum[0]).await;
    assert_refuses(&url, "READONLY", "connect to its master").await;
}

#[tokio::test]
async fn a_master_of_a_cluster_that_refuses_every_lock_exits_with_1() {
    let cluster = RedisCluster::start().await;
    for n in 0..MASTERS {
        cluster.node(n).config_set("maxmemory", "1").await;
        assert_refuses(&cluster.url(), "MEMORY", "raise `maxmemory`").await;
        cluster.node(n).config_set("maxmemory", "0").await;
    }
}

#[tokio::test]
async fn a_server_that_forgets_is_advised() {
    for (save, expected) in [
        ("", "forgets all locks"),
        ("3600 1", "since its last snapshot"),
    ] {
        let server = RedisServer::builder().start();
        server.config_set("save", save).await;
        let outcome = run(&server, &["doctor"]).await.exits(0);
        assert_eq!(marks(&outcome, "persistence"), ['!']);
        assert!(outcome.output.join("\n").contains(expected), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_user_who_may_not_lock_exits_with_1_and_learns_what_to_grant() {
    let rules = "on >s3cret resetkeys ~lock:* -@all +evalsha +script|load +get";
    let server = RedisServer::builder()
        .acl_user("reader", rules)
        .acl_user("locker", LOCKER)
        .acl_user("powerless", "on >s3cret -@all")
        .start();
    if major(&server).await >= 7 {
        let outcome = run(&server.url_as("reader", "s3cret"), &["doctor"])
            .await
            .exits(1);
        assert_eq!(marks(&outcome, "permissions"), ['✗', '!']);
        let text = outcome.output.join("\n");
        assert!(text.contains("grant +hdel +hexists +hget +hset"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
        assert_eq!(marks(&outcome, "operations"), ['!']);

        let outcome = run(&server.url_as("locker", "s3cret"), &["doctor"])
            .await
            .exits(0);
        assert_eq!(marks(&outcome, "permissions"), ['!']);
    }
    let outcome = run(&server.url_as("powerless", "s3cret"), &["doctor"])
        .await
        .exits(1);
    assert_eq!(marks(&outcome, "scripts"), ['✗']);
    let outcome = run(&server.url_as("powerless", "wr0ng"), &["doctor"])
        .await
        .exits(69);
    assert!(!format!("{outcome:?}").contains("wr0ng"), "{outcome:?}");
}

#[tokio::test]
async fn a_user_who_may_not_write_any_lock_exits_with_1_and_learns_all_that_is_missing() {
    let commands = "get hdel hexists hget hset pexpire pttl set time script|load";
    let all = || commands.split(' ').collect::<Vec<_>>();
    let keys = "this user may not write the keys `lock:*`; grant `~lock:*`, or set the prefix to that of the service \
                (`prefix` of the builder, `--prefix` or `RLOCK_PREFIX` of the command `rlock`)";
    let cases = [
        ("~lock:* -@all +evalsha", grants(&all(), &[])),
        (
            "~lock:* -@all +evalsha +time +zadd",
            grants(&all(), &["time"]),
        ),
        ("~billing:* &billing:* +@all", vec![keys.to_owned()]),
        ("~billing:* +@all -time", {
            let rest = grants(&["time"], &[]);
            [vec![keys.to_owned()], rest].concat()
        }),
    ];
    let server = RedisServer::start();
    if major(&server).await < 7 {
        return;
    }
    // Loads the script of this check.
    run(&server, &["doctor"]).await.exits(0);
    for (rules, expected) in cases {
        let all_rules = format!("reset on >s3cret resetkeys resetchannels {rules}");
        server.set_user("locker", &all_rules).await;
        let url = server.url_as("locker", "s3cret");
        let outcome = run(&url, &["doctor", "--json"]).await.exits(1);
        let found: Vec<String> = objects(&outcome)
            .iter()
            .filter(|object| object["check"] == "permissions" && object["severity"] == "unsafe")
            .map(|object| object["text"].to_string().replace('"', ""))
            .collect();
        assert_eq!(found, expected, "{rules}");
        let text = outcome.output.join("\n");
        assert!(text.contains("grant &lock:* +"), "{text}");
        assert!(text.contains(" +subscribe +publish"), "{text}");
    }
}

/// Returns the finding that these commands are missing, without those that are not.
fn grants(commands: &[&str], present: &[&str]) -> Vec<String> {
    let missing = commands.iter().filter(|name| !present.contains(name));
    let rules: Vec<String> = missing.map(|name| format!("+{name}")).collect();
    let text = format!(
        "locks need permissions that this user does not have; grant {}",
        rules.join(" ")
    );
    vec![text]
}

#[tokio::test]
async fn a_connection_that_fails_is_reported_with_the_way_out() {
    let server = RedisServer::builder().tls().start();
    let database = format!("{}99", server.url());
    for (url, way_out) in [
        (&*database, "database 99 of the URL"),
        (&server.tls_url(), "`SSL_CERT_FILE`"),
    ] {
        let outcome = run(url, &["doctor"]).await.exits(69);
        assert!(outcome.log.contains(way_out), "{outcome:?}");
    }
}

#[tokio::test]
async fn the_permissions_of_the_prefix_count() {
    let rules = format!("{LOCKER} resetkeys ~billing:*");
    let server = RedisServer::builder().acl_user("locker", &rules).start();
    if major(&server).await < 7 {
        return;
    }
    let url = server.url_as("locker", "s3cret");
    run(&url, &["doctor", "--prefix", "billing:"])
        .await
        .exits(0);
}

#[tokio::test]
async fn the_older_protocol_and_a_replica_are_reported() {
    let (server, replica) = (RedisServer::start(), RedisServer::start());
    let url = format!("{}?protocol=resp2", server.url());
    let outcome = run(&url, &["doctor"]).await.exits(0);
    assert_eq!(marks(&outcome, "tracking"), ['!']);
    replica.follow(&server).await;
    let outcome = run(&replica, &["doctor"]).await.exits(1);
    assert!(
        outcome
            .output
            .join("\n")
            .contains("give the URL of its master"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn sentinels_their_master_and_its_replicas_are_examined() {
    let trio = Trio::start().await;
    let outcome = run(&trio, &["doctor"]).await.exits(0);
    assert_eq!(marks(&outcome, "master"), ['✓'; 3]);
    assert_eq!(marks(&outcome, "scripts"), ['✓'; 2]);
    let text = outcome.output.join("\n");
    assert!(
        text.contains(&format!("{}\n", trio.master.address())),
        "{text}"
    );
    assert!(
        text.contains(&format!("{} (replica)", trio.replica.address())),
        "{text}"
    );
    trio.sentinels[0].kill();
    let outcome = run(&trio, &["doctor"]).await.exits(0);
    assert_eq!(marks(&outcome, "connection"), ['!']);
    trio.sentinels[1].kill();
    run(&trio, &["doctor"]).await.exits(1);
    let findings = objects(&run(&trio, &["doctor", "--json"]).await);
    let mut granted = findings.iter().filter(|one| one["check"] == "grant");
    let of = granted.next().map(|grant| &grant["server"]);
    assert_eq!(of, Some(&trio.master.address().into()), "{findings:?}");
    trio.sentinels[2].kill();
    run(&trio, &["doctor"]).await.exits(69);
}

#[tokio::test]
async fn all_nodes_of_a_cluster_are_examined() {
    let cluster = RedisCluster::start().await;
    let outcome = run(&cluster, &["doctor"]).await.exits(0);
    assert_eq!(marks(&outcome, "slots"), ['✓']);
    assert_eq!(
        marks(&outcome, "scripts"),
        ['✓'; 2 * MASTERS],
        "{outcome:#?}"
    );
    let replicas = outcome
        .output
        .iter()
        .filter(|line| line.ends_with("(replica)"));
    assert_eq!(replicas.count(), MASTERS, "{outcome:?}");
}

#[tokio::test]
async fn a_quorum_is_examined_as_a_whole() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let urls = servers.each_ref().map(RedisServer::url);
    let outcome = run(&urls.join(" "), &["doctor"]).await.exits(0);
    assert_eq!(marks(&outcome, "scripts"), ['✓'; 3]);
    assert_eq!(marks(&outcome, "majority"), ['✓']);

    let twice = urls[0].replace("127.0.0.1", "localhost");
    let outcome = run(&format!("{} {} {twice}", urls[0], urls[1]), &["doctor"])
        .await
        .exits(1);
    assert_eq!(marks(&outcome, "identity"), ['✗']);
    let outcome = run(&urls[..2].join(" "), &["doctor"]).await;
    assert_eq!(marks(&outcome, "majority"), ['!'], "{outcome:?}");

    servers[0].kill();
    let outcome = run(&urls.join(" "), &["doctor"]).await.exits(0);
    assert_eq!(marks(&outcome, "connection"), ['!']);
    servers[1].kill();
    run(&urls.join(" "), &["doctor"]).await.exits(69);
}

#[tokio::test]
async fn a_slow_link_is_not_measured_as_often() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    proxy.delay_replies(Duration::from_millis(250));
    let outcome = run(&proxy, &["doctor"]).await;
    assert_eq!(marks(&outcome, "round trip"), ['✓'], "{outcome:?}");
    let text = outcome.output.join("\n");
    let (_, rest) = text.split_once("slowest of ").expect(&text);
    let count: u32 = rest
        .split(' ')
        .next()
        .and_then(|it| it.parse().ok())
        .expect(&text);
    assert!(count < 50, "three seconds suffice: {text}");
}
