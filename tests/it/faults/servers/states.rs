//! One Redis server in every state that it can be in, and all URLs that reach it.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::{Lock, LockClient, LockError, LockGuard, LostCause, escape};
use rlock_testkit::{Proxy, RedisServer, assert_taken, eventually};

use crate::common::{
    LASTING, LONG, acquiring, assert_lost, assert_soon_free, assert_soon_queued, cause_of, client,
    connect, count, hold, its_turn, ms, name, resp2, resp2_client, timed,
};

/// Acquires, enters, inspects, waits, hands over and releases. Panics if one of these fails.
async fn assert_all_works(one: &LockClient, other: &LockClient, key: &str) {
    let lock = one.lock(key).lease(LASTING);
    let guard = lock.acquire().await.expect("free");
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    let info = one.inspect(key).await.expect("a reply").expect("held");
    assert_eq!((info.owner, info.count), (guard.owner().to_string(), 2));
    nested.release().await.expect("held");
    assert_taken(other, key).await;
    let next = other.lock(key).lease(LASTING).wait(LONG);
    let waiting = tokio::spawn(async move { timed(next.acquire()).await });
    tokio::time::sleep(ms(150)).await;
    assert!(!waiting.is_finished());
    guard.release().await.expect("held");
    let (next, waited) = waiting.await.expect("no panic");
    assert!(
        waited < Duration::from_secs(4),
        "by its notification, not its timer"
    );
    next.expect("its turn").release().await.expect("held");
    assert!(one.inspect(key).await.expect("a reply").is_none());
}

#[tokio::test]
async fn a_flush_of_all_scripts_between_any_two_calls_changes_nothing() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(1500));
    server.script_flush().await;
    let outer = lock.acquire().await.expect("free");
    server.script_flush().await;
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    server.script_flush().await;
    let info = client.inspect("k").await.expect("a reply");
    assert_eq!(info.expect("held").count, 2);
    server.script_flush().await;
    let mut watch = server.watch_commands().await;
    eventually(LONG, "it is renewed", async || {
        server.script_flush().await;
        watch.count_of("EVALSHA").await >= 2
    })
    .await;
    tokio::time::sleep(ms(1500)).await;
    assert!(outer.is_valid(), "the renewals do their work");
    server.script_flush().await;
    inner.release().await.expect("held");
    assert_eq!(count(&server, &outer).await, Some(1));
    server.script_flush().await;
    outer.release().await.expect("held");
    assert!(!server.exists(&name("k")).await);
}

#[tokio::test]
async fn a_restart_without_data_is_noticed_and_tokens_keep_growing() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(LASTING);
    let mut last = 0;
    for round in 0..3 {
        let guard = lock.acquire().await.expect("free");
        let token = guard.fencing_token();
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        if round == 0 {
            server.restart();
        } else {
            let () = server.command(&["FLUSHALL"]).await;
        }
        // The next renewal is ten seconds away.
        assert_lost(&guard, Duration::from_secs(5), LostCause::Removed).await;
        let outcome = guard.release().await;
        assert_eq!(cause_of(outcome), Some(LostCause::Removed));
    }
    assert!(lock.acquire().await.expect("free").fencing_token() > last);
}

#[tokio::test]
async fn tokens_keep_growing_when_the_servers_clock_was_set_back() {
    /// A fence of the year 2033.
    const LAST: u64 = 31_250_000_000_000;
    let server = RedisServer::start();
    let client = client(&server).await;
    let fence = format!("{}:fence", name("k"));
    let () = server.command(&["SET", &fence, &LAST.to_string()]).await;
    let mut last = LAST * 128 + 127;
    for _ in 0..3 {
        let guard = client.lock("k").acquire().await.expect("free");
        assert!(guard.fencing_token() > last, "{}", guard.fencing_token());
        last = guard.fencing_token();
        guard.release().await.expect("held");
    }
}

/// Eviction can delete the fence of a lock that is held.
#[tokio::test]
async fn tokens_keep_growing_when_the_last_one_is_gone_before_the_release() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let lock = one.lock("k").lease(LASTING);
    let mut last = 0;
    let mut grows = |guard: &LockGuard| {
        assert!(guard.fencing_token() > last, "{}", guard.fencing_token());
        last = guard.fencing_token();
    };
    let fence = format!("{}:fence", name("k"));
    for kept in [Duration::ZERO, ms(50)] {
        let guard = lock.clone().at_least(kept).acquire().await.expect("free");
        grows(&guard);
        assert!(server.del(&fence).await);
        guard.release().await.expect("held");
    }
    let guard = lock.acquire().await.expect("free");
    grows(&guard);
    let waiting = acquiring(other.lock("k").wait(LONG));
    assert_soon_queued(&server, "k", 1).await;
    assert!(server.del(&fence).await);
    guard.release().await.expect("held");
    let guard = its_turn(waiting).await;
    grows(&guard);
    guard.release().await.expect("held");
    // One script releases several locks.
    let keys: Vec<_> = (0..16).map(|n| format!("k{n}")).collect();
    let locks: Vec<_> = keys.iter().map(|key| one.lock(key)).collect();
    let taken = || join_all(locks.iter().map(Lock::acquire));
    let first: Vec<_> = taken()
        .await
        .into_iter()
        .map(|taken| taken.expect("free"))
        .collect();
    let tokens: Vec<_> = first.iter().map(LockGuard::fencing_token).collect();
    for key in &keys {
        assert!(server.del(&format!("{}:fence", name(key))).await);
    }
    for released in join_all(first.into_iter().map(LockGuard::release)).await {
        released.expect("held");
    }
    for (taken, before) in taken().await.into_iter().zip(tokens) {
        assert!(taken.expect("free").fencing_token() > before);
    }
}

fn refusal(error: &LockError) -> String {
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_foreign_key_in_the_lock_s_place_is_reported_and_left_alone() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").wait(LONG);
    let key = name("k");
    for command in [["SET", &key, "text"], ["RPUSH", &key, "item"]] {
        let _: redis::Value = server.command(&command).await;
        let dump: redis::Value = server.command(&["DUMP", &key]).await;
        let (outcome, took) = timed(lock.acquire()).await;
        let shown = refusal(&outcome.expect_err("it is no lock"));
        assert!(
            shown.contains("`k`") && shown.contains("WRONGTYPE"),
            "{shown}"
        );
        assert!(took < LONG / 2, "no wait would help, yet it took {took:?}");
        let shown = refusal(&lock.try_acquire().await.expect_err("it is no lock"));
        assert!(shown.contains("`k`"), "{shown}");
        let shown = refusal(&client.inspect("k").await.expect_err("it is no lock"));
        assert!(shown.contains("`k`"), "{shown}");
        tokio::time::sleep(ms(100)).await;
        let now: redis::Value = server.command(&["DUMP", &key]).await;
        assert_eq!(now, dump, "it is as it was");
        assert_eq!(server.pttl(&key).await, -1);
        assert!(server.del(&key).await);
    }
    drop(lock.acquire().await.expect("out of the way"));
}

#[tokio::test]
async fn a_foreign_key_in_the_token_s_place_is_reported_and_left_alone() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").wait(LONG);
    let fence = format!("{}:fence", name("k"));
    for command in [["RPUSH", &fence, "item"], ["SADD", &fence, "member"]] {
        let _: redis::Value = server.command(&command).await;
        let dump: redis::Value = server.command(&["DUMP", &fence]).await;
        let shown = refusal(&lock.acquire().await.expect_err("no token"));
        assert!(shown.contains("`k`"), "{shown}");
        assert!(!server.exists(&name("k")).await, "nothing was taken");
        let now: redis::Value = server.command(&["DUMP", &fence]).await;
        assert_eq!(now, dump, "it is as it was");
        assert!(server.del(&fence).await);
    }
    drop(lock.acquire().await.expect("out of the way"));
}

#[tokio::test]
async fn a_held_lock_that_is_overwritten_is_lost_and_what_is_there_stays() {
    let server = RedisServer::start();
    let key = name("k");
    for (client, lease) in [
        (client(&server).await, LASTING),
        (resp2_client(&server).await, ms(900)),
    ] {
        let guard = client.lock("k").lease(lease).acquire().await;
        let guard = guard.expect("free");
        let () = server.command(&["SET", &key, "text"]).await;
        assert_lost(&guard, ms(3000), LostCause::Removed).await;
        drop(guard);
        tokio::time::sleep(ms(200)).await;
        let text: String = server.command(&["GET", &key]).await;
        assert_eq!(text, "text");
        assert_eq!(server.pttl(&key).await, -1);
        server.del(&key).await;
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_within_the_connect_timeout() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    proxy.black_hole();
    let nobody = RedisServer::start();
    nobody.kill();
    let socket = format!("unix://{}/nobody.sock", server.directory().display());
    for url in [nobody.url(), proxy.url(), socket, resp2(&proxy.url())] {
        let builder = LockClient::builder().connect_timeout(ms(500));
        let (outcome, took) = timed(builder.connect(&url)).await;
        let error = outcome.expect_err("no server replies");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(took < ms(2500), "{url}: {took:?}");
        let shown = error.to_string();
        let place = url
            .trim_start_matches("redis://")
            .trim_start_matches("unix://");
        let place = place.split(['?']).next().expect("a first part");
        assert!(shown.contains(place.trim_end_matches('/')), "{shown}");
    }
}

#[tokio::test]
async fn a_password_is_needed_where_the_server_asks_for_one_and_is_never_shown() {
    const SECRET: &str = "Pa55-for-tests";
    let server = RedisServer::builder()
        .password(SECRET)
        .acl_user("alice", &format!(">{SECRET} on ~lock:* &lock:* +@all"))
        .start();
    let (at, socket) = (server.address(), server.unix_url());
    let socket = socket.split('?').next().expect("a path");
    for query in ["", "?protocol=resp2"] {
        for url in [
            format!("redis://:{SECRET}x@{at}/{query}"),
            format!("redis://alice:{SECRET}x@{at}/{query}"),
            format!("redis://nobody:{SECRET}@{at}/{query}"),
            format!("redis://{at}/{query}"),
            format!("{socket}?pass={SECRET}x"),
            socket.to_owned(),
        ] {
            let outcome = timed(LockClient::connect(&url)).await;
            let (Err(error), took) = outcome else {
                panic!("{url} is let in")
            };
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("Pa55"), "{url}: {shown}");
            assert!(matches!(error, LockError::Store { .. }), "{url}: {shown}");
            assert!(took < LONG, "{url}: {took:?}");
        }
        for url in [
            format!("redis://:{SECRET}@{at}/{query}"),
            format!("redis://default:{SECRET}@{at}/{query}"),
            format!("redis://alice:{SECRET}@{at}/{query}"),
            format!("redis://alice:%50a55-for-tests@{at}/{query}"),
            format!("{socket}?pass={SECRET}"),
            format!("{socket}?user=alice&pass={SECRET}"),
        ] {
            let clients = (connect(&url).await, connect(&url).await);
            assert_all_works(&clients.0, &clients.1, "k").await;
            let shown = format!("{:?} {:?}", clients.0, clients.0.lock("k"));
            assert!(!shown.contains("Pa55"), "{shown}");
        }
    }
}

/// The error of a later connection must not show it either.
#[tokio::test]
async fn a_password_that_is_changed_is_refused_without_being_shown() {
    let server = RedisServer::builder().password("Pa55-before").start();
    let client = client(&server).await;
    server.config_set("requirepass", "Pa55-after").await;
    server.kill_clients("normal").await;
    server.kill_clients("pubsub").await;
    let lock = client.lock("k").wait(LONG);
    let mut error = lock.acquire().await.expect_err("refused");
    eventually(LONG, "the refusal is returned at once", async || {
        let (outcome, took) = timed(lock.acquire()).await;
        error = outcome.expect_err("refused");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("Pa55"), "{shown}");
        matches!(error, LockError::Store { .. }) && took < ms(2000)
    })
    .await;
    server.config_set("requirepass", "Pa55-before").await;
    eventually(LONG, "the client reconnects by itself", async || {
        lock.try_acquire().await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn databases_of_one_server_are_places_of_their_own() {
    let server = RedisServer::start();
    let (zero, two) = (
        client(&server).await,
        connect(&format!("{}2", server.url())).await,
    );
    let guard = zero.lock("k").acquire().await.expect("free");
    let free = two.lock("k").acquire().await.expect("another lock");
    assert!(two.inspect("k").await.expect("a reply").is_some());
    free.release().await.expect("held");
    assert!(two.inspect("k").await.expect("a reply").is_none());
    let socket = connect(&format!("{}?db=2", server.unix_url())).await;
    let two_more = connect(&format!("{}2?protocol=resp2", server.url())).await;
    assert_all_works(&two, &socket, "other").await;
    assert_all_works(&two_more, &two, "other").await;
    assert!(guard.is_valid());
    guard.release().await.expect("held");
}

#[tokio::test]
async fn everything_works_by_socket_and_by_either_protocol() {
    let server = RedisServer::start();
    let clients = [
        client(&server).await,
        resp2_client(&server).await,
        connect(&server.unix_url()).await,
        connect(&resp2(&server.unix_url())).await,
        connect(&format!("{}?protocol=resp3", server.url())).await,
    ];
    for (one, other) in clients.iter().zip(clients.iter().cycle().skip(1)) {
        assert_all_works(one, other, "k").await;
    }
}

#[tokio::test]
async fn a_full_server_grants_no_lock_and_accepts_every_release() {
    let server = RedisServer::builder()
        .config("maxmemory-policy", "noeviction")
        .start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(900));
    let outer = lock.acquire().await.expect("free");
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    let dropped = client.lock("dropped").acquire().await.expect("free");
    let kept = hold(&client, "kept").await;
    server.config_set("maxmemory", "1").await;

    let (outcome, took) = timed(client.lock("new").wait(ms(500)).acquire()).await;
    let error = outcome.expect_err("the server is full");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let shown = error.to_string();
    assert!(shown.contains("OOM") && shown.contains("`new`"), "{shown}");
    assert!(took < ms(2500), "{took:?}");
    let refused = client.lock("new").try_acquire().await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })));

    tokio::time::sleep(ms(1500)).await;
    assert!(outer.is_valid(), "leases are renewed all the same");
    inner.release().await.expect("released");
    outer.release().await.expect("released");
    assert!(!server.exists(&name("k")).await);
    drop(dropped);
    assert_soon_free(&server, "dropped").await;

    // When there is room again, all calls succeed.
    server.config_set("maxmemory", "0").await;
    let new = client.lock("new").acquire().await.expect("room");
    new.release().await.expect("held");
    kept.release().await.expect("held");
}

#[tokio::test]
async fn shutdown_releases_every_lock() {
    let server = RedisServer::start();
    for client in [client(&server).await, resp2_client(&server).await] {
        let mut guards = Vec::new();
        for n in 0..100 {
            let lock = client.lock(format!("many:{n}"));
            guards.push(lock.acquire().await.expect("free"));
        }
        assert_eq!(server.keys("lock:{many:*}").await.len(), 100);
        client.shutdown().await.expect("everything is released");
        assert_eq!(server.keys("lock:{many:*}").await.len(), 0);
        for guard in &guards {
            assert_lost(guard, LONG, LostCause::Closed).await;
        }
    }
}

#[tokio::test]
async fn shutdown_without_a_server_ends_in_time_and_says_that_locks_are_left() {
    let server = RedisServer::start();
    let builder = LockClient::builder().response_timeout(ms(500));
    let client = builder.connect(&server.url()).await.expect("it is up");
    let _guard = client.lock("k").acquire().await.expect("free");
    server.pause();
    let (outcome, took) = timed(client.shutdown()).await;
    let error = outcome.expect_err("the server does not reply");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert!(took < LONG, "{took:?}");
}

#[tokio::test]
async fn locks_under_two_prefixes_have_nothing_to_do_with_each_other() {
    let server = RedisServer::start();
    let under = |prefix: &str| {
        let builder = LockClient::builder().prefix(prefix);
        let url = server.url();
        async move { builder.connect(&url).await.expect("the server is up") }
    };
    let (billing, again, none) = (
        under("billing:lock:").await,
        under("billing:lock:").await,
        under("").await,
    );
    let default = client(&server).await;
    let held = [
        billing.lock("k").acquire().await.expect("free"),
        default.lock("k").acquire().await.expect("free"),
        none.lock("k").acquire().await.expect("free"),
    ];
    assert_taken(&again, "k").await;
    let keys = server.keys("*{k}").await;
    assert_eq!(keys, ["billing:lock:{k}", "lock:{k}", "{k}"]);
    for guard in held {
        guard.release().await.expect("held");
    }
    assert_all_works(&billing, &again, "k").await;
    assert_all_works(&none, &none, "k").await;
}

#[tokio::test]
async fn inspecting_a_lock_shows_its_holder() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, resp2_client(&server).await);
    assert_eq!(other.inspect("k").await.expect("a reply"), None);
    let lock = one.lock("k").lease(LASTING);
    let guard = lock.acquire().await.expect("free");
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    for client in [&one, &other] {
        let info = client.inspect("k").await.expect("a reply");
        let info = info.expect("held");
        assert_eq!(info.owner, guard.owner().to_string());
        assert_eq!(info.count, 2);
        assert_eq!(info.token, Some(guard.fencing_token()));
        let ttl = info.ttl.expect("a time to live");
        assert!(ttl <= LASTING && ttl > LASTING / 2, "{ttl:?}");
    }
    let _: bool = server.command(&["PERSIST", &name("k")]).await;
    assert!(server.del(&format!("{}:fence", name("k"))).await);
    let info = other.inspect("k").await.expect("a reply");
    assert_eq!(
        info.expect("held").token,
        Some(guard.fencing_token()),
        "the holder knows it"
    );
    nested.release().await.expect("held");
    guard.release().await.expect("held");
    assert_eq!(one.inspect("k").await.expect("a reply"), None);
}

#[tokio::test]
async fn keys_bring_their_own_hash_tag_or_get_one() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let guards = [
        one.lock("{tenant:7}:order:1")
            .acquire()
            .await
            .expect("free"),
        one.lock("order:{7}").acquire().await.expect("free"),
        one.lock("order:7").acquire().await.expect("free"),
    ];
    for guard in &guards {
        let info = other.inspect(guard.key()).await.expect("a reply");
        assert_eq!(info.expect("held").owner, guard.owner().to_string());
    }
    let all = server.keys("*").await;
    assert_eq!(
        all.len(),
        guards.len() * 2,
        "a lock and a token each: {all:?}"
    );
    for tag in ["{tenant:7}", "{7}", "{order:7}"] {
        let with_tag = |key: &&String| {
            let (_, rest) = key.split_once('{').expect("a tag");
            let (inner, _) = rest.split_once('}').expect("a tag");
            format!("{{{inner}}}") == tag
        };
        assert_eq!(all.iter().filter(with_tag).count(), 2, "{tag} of {all:?}");
    }
    for guard in guards {
        let (key, lasting) = (guard.key().to_owned(), guard.is_valid());
        assert!(lasting);
        guard.release().await.expect("held");
        assert_all_works(&one, &other, &key).await;
    }
    // Reports of a loss name the key as the caller wrote it.
    for key in ["{tenant:7}:order:1", "order:{7}", "order:7"] {
        let guard = hold(&one, key).await;
        let () = server.command(&["FLUSHALL"]).await;
        assert_lost(&guard, ms(3000), LostCause::Removed).await;
        let guard = hold(&one, key).await;
        let keys = server.keys("*").await;
        let lock = keys.iter().find(|key| !key.ends_with(":fence"));
        assert!(server.del(lock.expect("a lock")).await);
        assert_lost(&guard, ms(3000), LostCause::Removed).await;
    }
}

#[tokio::test]
async fn hostile_keys_are_locks_like_others_and_none_is_another_s() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, resp2_client(&server).await);
    let long = "x".repeat(1024);
    let hostile = [
        "a b\tc",
        "line\r\nbreak",
        "*1\r\n$8\r\nFLUSHALL\r\n",
        "nul\0byte",
        "*",
        "?",
        "[a-z]",
        "\"quoted\" and \\ back",
        "' .. redis.call('FLUSHALL') .. '",
        "k:fence",
        "k:released",
        "k",
        "%7B",
        "schlüssel-鍵-🔑",
        "-1",
        " ",
        &long,
    ];
    let mut guards = Vec::new();
    for key in hostile {
        let guard = one.lock(key).lease(LASTING).acquire().await;
        guards.push(guard.unwrap_or_else(|error| panic!("{key:?}: {error}")));
    }
    for guard in &guards {
        let info = other.inspect(guard.key()).await.expect("a reply");
        assert_eq!(info.expect("held").owner, guard.owner().to_string());
    }
    let all: u64 = server.command(&["DBSIZE"]).await;
    assert_eq!(all, hostile.len() as u64 * 2, "a lock and a token each");
    for guard in guards {
        guard.release().await.expect("held");
    }
    join_all(hostile.map(|key| assert_all_works(&one, &other, key))).await;

    // `escape` keeps values in keys apart.
    let escaped = |one: &str, two: &str| format!("{}:{}", escape(one), escape(two));
    let pairs = [("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("{a}", "}{")];
    let keys = pairs.map(|(one, two)| escaped(one, two));
    let held = join_all(keys.iter().map(|key| {
        let lock = one.lock(key.as_str());
        async move { lock.try_acquire().await.expect("valid").expect("free") }
    }));
    assert_eq!(held.await.len(), pairs.len());

    for key in ["", "{", "}", "{}", "a}b{c", "{a}{b}", &format!("{long}x")] {
        let error = one.lock(key).acquire().await.expect_err("no key");
        assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
        one.inspect(key).await.expect_err("no key");
    }
}

#[tokio::test]
async fn a_busy_server_is_waited_for() {
    let server = RedisServer::builder()
        .config("lua-time-limit", "50")
        .start();
    let client = client(&server).await;
    let busy = tokio::spawn(async move {
        server.run_script_for(ms(3000)).await;
        server
    });
    tokio::time::sleep(ms(300)).await;
    let outcome = client.lock("k").wait(ms(300)).acquire().await;
    let error = outcome.expect_err("the server is busy");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("`k`"), "{error}");
    let guard = client.lock("k").wait(LONG).acquire().await;
    let guard = guard.expect("it is free when the script ends");
    let server = busy.await.expect("no panic");
    assert_eq!(count(&server, &guard).await, Some(1));
    guard.release().await.expect("held");
    assert_soon_queued(&server, "k", 0).await;
}
