//! The permissions of a client, with one left out at a time. `docs/security.md` lists them.

mod beyond;

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError, LockMode, LostCause};
use rlock_testkit::{RedisServer, eventually, within};

use crate::common::{
    LASTING, LONG, acl, acquiring,
    alone::alone,
    assert_notices_a_loss, assert_notified, assert_soon_free, builder, connect, connect_with,
    enqueued, hand_off, its_turn,
    log::{keep_log, logged_with},
    ms, queue,
};

/// Required permissions. `HELLO` and `AUTH` are always allowed.
const NEEDED: [&str; 12] = [
    "~lock:*",
    "+evalsha",
    // Only where no other client has loaded the scripts.
    "+script|load",
    "+get",
    "+hdel",
    "+hexists",
    "+hget",
    "+hset",
    "+pexpire",
    "+pttl",
    "+set",
    "+time",
];

/// Optional permissions. Without them, renewals find losses, waiters use timers, and no warning
/// about eviction is logged.
const BETTER: [&str; 14] = [
    "&lock:*",
    "+client|id",
    "+client|tracking",
    // Ends each script, so that client tracking covers the lock.
    "+exists",
    "+publish",
    "+subscribe",
    "+zadd",
    "+zpopmin",
    "+zrange",
    "+zrem",
    // For shared locks and permits.
    "+zscore",
    "+info",
    // For `LockClient::inspect`, and for holds without renewal.
    "+hgetall",
    // For cheaper renewals, and for shared locks and permits.
    "+hsetnx",
];

/// A permission without which locks are as fast.
const NAMES: &str = "+client|setname";

/// A permission that only errors about keys of other software need.
const TYPES: &str = "+type";

/// The number of clients that connect to each server in the test of optional permissions.
const CLIENTS: usize = 3;

/// Starts a server with a user that has only these permissions.
fn server_with(rules: &[&str]) -> RedisServer {
    keep_log();
    let rules = format!("on >secret resetchannels {}", rules.join(" "));
    RedisServer::builder().acl_user("locker", &rules).start()
}

fn url(server: &RedisServer) -> String {
    server.url_as("locker", "secret")
}

fn by(protocol: &str, server: &RedisServer) -> String {
    format!("{}?protocol={protocol}", url(server))
}

/// Returns the name that log lines give to a permission.
fn command_of(rule: &str) -> String {
    let command = rule.trim_start_matches(['+', '&']);
    command.replace("lock:*", "publish")
}

fn all() -> Vec<&'static str> {
    [&NEEDED[..], &BETTER[..], &[NAMES, TYPES]].concat()
}

fn all_but(left_out: &str) -> Vec<&'static str> {
    let mut rules = all();
    rules.retain(|rule| *rule != left_out);
    rules
}

/// Returns the warnings of this server's clients about permissions.
fn warnings(server: &RedisServer) -> Vec<String> {
    logged_with(&[&server.address(), "lacks permissions"])
}

/// Acquires, renews, enters and releases. Returns the step that failed with its error.
async fn life_of_a_lock(client: &LockClient, key: &str) -> Result<(), (&'static str, LockError)> {
    let lock = client.lock(key).lease(ms(9000)).wait(LONG);
    let outer = lock.acquire().await.map_err(|error| ("take", error))?;
    let inner = outer.scope(lock.acquire()).await.expect("no request");
    let end = Instant::now() + outer.valid_for();
    eventually(LONG, "it is renewed, or its lease ends", async || {
        !outer.is_valid() || Instant::now() + outer.valid_for() > end + ms(1000)
    })
    .await;
    inner.release().await.map_err(|error| ("leave", error))?;
    outer.release().await.map_err(|error| ("release", error))?;
    // The next grant reads the fence.
    let again = lock.acquire().await.map_err(|error| ("take", error))?;
    again.release().await.map_err(|error| ("release", error))
}

/// Waits for a lock, and asks for it once more after the hand-off, because no watchdog makes that last.
async fn confirm_a_hand_off(
    server: &RedisServer,
    client: &LockClient,
    key: &str,
) -> Result<(), (&'static str, LockError)> {
    let lock = client.lock(key).lease(ms(9000)).wait(LONG);
    let guard = lock.acquire().await.map_err(|error| ("take", error))?;
    let other = connect(&url(server)).await;
    let waiting = acquiring(other.lock(key).lease(ms(9000)).wait(LONG).watchdog(false));
    eventually(LONG, "it waits, or is refused", async || {
        let queue = queue(key);
        waiting.is_finished() || server.command::<u64>(&["ZCARD", &queue]).await == 1
    })
    .await;
    guard.release().await.map_err(|error| ("release", error))?;
    let next = waiting.await.expect("no panic");
    drop(next.map_err(|error| ("wait", error))?);
    Ok(())
}

#[test]
fn the_tested_permissions_are_those_of_the_documentation() {
    let documented = acl::of_a_server();
    let documented: BTreeSet<&str> = documented.split(' ').collect();
    assert_eq!(documented, all().into_iter().collect());
}

#[tokio::test]
async fn the_least_permissions_are_enough_for_everything() {
    let work = async |protocol, template| {
        let server = server_with(&NEEDED);
        let url = by(protocol, &server);
        let (one, other) = (connect(&url).await, connect(&url).await);
        one.ping().await.expect("it needs no permission");
        life_of_a_lock(&one, "k").await.expect("allowed");
        drop(one.lock("k").acquire().await.expect("free"));
        assert_soon_free(&server, "k").await;
        let brought = hand_off((&one, &other), "k", template).await;
        assert_eq!(brought, "timer", "{protocol}");
        assert_notices_a_loss(&server, &one, false).await;
        server
    };
    let (one, two) = tokio::join!(work("resp3", "least, resp3"), work("resp2", "least, resp2"));
    for server in [one, two] {
        if !acl::can_be_reported(&server).await {
            continue;
        }
        let said = warnings(&server);
        assert!(!said.is_empty());
        for line in said {
            assert!(line.contains("WARN"), "{line}");
            for rule in BETTER {
                let command = command_of(rule);
                assert!(line.contains(&command), "{command}: {line}");
            }
        }
    }
}

#[tokio::test]
async fn with_all_permissions_nothing_is_refused_and_no_call_waits_for_a_timer() {
    let server = server_with(&all());
    let one = connect(&url(&server)).await;
    life_of_a_lock(&one, "k").await.expect("allowed");
    for protocol in ["resp3", "resp2"] {
        let other = connect(&by(protocol, &server)).await;
        assert_notified((&one, &other), "k", "with all permissions").await;
    }
    assert_notices_a_loss(&server, &one, true).await;
    let guard = one.lock("k").lease(LASTING).acquire().await.expect("free");
    let info = one.inspect("k").await.expect("allowed").expect("held");
    assert_eq!(info.owner, guard.owner());
    guard.release().await.expect("held");
    let min_hold = one.lock("b").lease(LASTING).min_hold(ms(50));
    let guard = min_hold.acquire().await.expect("free");
    guard.release().await.expect("held");
    // A call outside of the client's runtime uses the background connection.
    let blocking = one.clone();
    let outside = thread::spawn(move || blocking.lock("c").acquire_blocking().map(drop));
    outside.join().expect("no panic").expect("free");
    assert_soon_free(&server, "c").await;
    let refused = acl::refused(&server).await;
    assert_eq!(refused, BTreeSet::new(), "nothing was refused");
    assert_eq!(warnings(&server), Vec::<String>::new());
}

#[tokio::test]
async fn a_user_without_a_needed_permission_gets_an_error_and_leaves_nothing_behind() {
    let fails = [
        ("~lock:*", "take"),
        ("+evalsha", "take"),
        ("+script|load", "take"),
        ("+get", "wait"),
        ("+hdel", "release"),
        ("+hexists", "leave"),
        ("+hget", "wait"),
        ("+hset", "take"),
        ("+pexpire", "take"),
        ("+pttl", "wait"),
        ("+set", "take"),
        ("+time", "take"),
    ];
    assert_eq!(fails.map(|(left_out, _)| left_out), NEEDED);
    join_all(fails.map(|(left_out, step)| async move {
        let mut rules = all_but(left_out);
        if left_out == "+hexists" {
            rules.retain(|rule| *rule != "+hsetnx");
        }
        let server = server_with(&rules);
        // Connecting needs none of them: a client may start before it gets its permissions. With a long time-out, no
        // acquire is repeated, which would need `+get` sooner.
        let client = builder().response_timeout(LONG).connect(url(&server));
        let client = client.await.expect("it is up");
        let outcome = if step == "wait" {
            confirm_a_hand_off(&server, &client, "k").await
        } else {
            life_of_a_lock(&client, "k").await
        };
        let (failed, error) = outcome.expect_err(left_out);
        assert_eq!(failed, step, "{left_out}: {error}");
        let said = format!("{error:#}");
        match (step, &error) {
            // The client repeats the refused renewals until the lease ends.
            ("leave", LockError::Lost { cause, .. }) => assert_eq!(*cause, LostCause::Expired),
            (_, LockError::Refused { .. }) => {
                let verb = if step == "release" { step } else { "acquire" };
                let start = format!("could not {verb} lock `k`");
                assert!(said.starts_with(&start), "{said}");
            }
            _ => panic!("{left_out}: {error:?}"),
        }
        // A refused acquire leaves nothing, and after a refused release the lease ends.
        assert_soon_free(&server, "k").await;
        match left_out {
            "+evalsha" => assert!(said.contains("evalsha"), "{said}"),
            "~lock:*" | "+script|load" => assert!(said.contains("permission"), "{said}"),
            _ => {}
        }
        if left_out != "+evalsha"
            && left_out != "+script|load"
            && acl::can_be_reported(&server).await
        {
            let mut said = warnings(&server);
            said.retain(|line| !line.contains("\"hsetnx\""));
            let clients = if step == "wait" { 2 } else { 1 };
            assert_eq!(said.len(), clients, "{said:?}");
            let quoted = format!("\"{}\"", left_out.trim_start_matches('+'));
            assert!(said[0].contains("ERROR") && said[0].contains(&quoted));
        }
    }))
    .await;
}

#[tokio::test]
async fn a_user_without_an_optional_permission_has_slower_locks_and_a_warning() {
    alone!(a_user_without_an_optional_permission_has_slower_locks_and_a_warning);
    let slower = [
        // The permission, and whether waiters and holders are still notified without it.
        ("&lock:*", false, true),
        ("+client|id", true, true),
        ("+client|tracking", true, false),
        ("+exists", true, false),
        ("+publish", false, true),
        ("+subscribe", false, true),
        ("+zadd", false, true),
        ("+zpopmin", false, true),
        ("+zrange", true, true),
        ("+zrem", true, true),
        ("+zscore", true, true),
        ("+info", true, true),
        ("+hgetall", true, true),
        ("+hsetnx", true, true),
        (NAMES, true, true),
    ];
    let listed: Vec<_> = slower.iter().map(|(left_out, ..)| *left_out).collect();
    assert_eq!(listed, [&BETTER[..], &[NAMES]].concat());
    join_all(slower.map(|(left_out, notified, losses)| async move {
        let server = server_with(&all_but(left_out));
        let one = connect(&url(&server)).await;
        let outcome = life_of_a_lock(&one, "k").await;
        outcome.unwrap_or_else(|(step, error)| panic!("{left_out}: {step}: {error}"));
        for protocol in ["resp3", "resp2"] {
            let other = connect(&by(protocol, &server)).await;
            let template = format!("{left_out}, {protocol}").leak();
            // With RESP3 the first waiter, or one without a place, is notified of the change, and retries.
            if notified || protocol == "resp3" {
                assert_notified((&one, &other), "k", template).await;
            } else {
                let brought = hand_off((&one, &other), "k", template).await;
                assert_eq!(brought, "timer", "{template}");
            }
        }
        assert_notices_a_loss(&server, &one, losses).await;
        if !acl::can_be_reported(&server).await {
            return;
        }
        // These lines are the only report of missing permissions.
        let said = logged_with(&[&server.address(), "lacks"]);
        if left_out == NAMES {
            assert_eq!(said, Vec::<String>::new());
            let refused = acl::refused(&server).await;
            assert_eq!(refused, ["client|setname".to_owned()].into());
            return;
        }
        assert_eq!(said.len(), CLIENTS, "{left_out}: {said:?}");
        let command = command_of(left_out);
        let named = |line: &String| line.contains("WARN") && line.contains(&command);
        assert!(said.iter().all(named), "{left_out}: {said:?}");
    }))
    .await;
}

/// A proxy may know `SCRIPT` as little as this user does.
#[tokio::test]
async fn where_scripts_cannot_be_loaded_eval_loads_each_of_them_once() {
    let mut rules = all_but("+script|load");
    rules.push("+eval");
    let refuses = server_with(&rules);
    let unknown = RedisServer::builder()
        .config("rename-command", "SCRIPT \"\"")
        .acl_user("locker", &format!("on >secret {}", rules.join(" ")))
        .start();
    join_all([&refuses, &unknown].map(async |server| {
        for (protocol, first) in [("resp3", 4), ("resp2", 0)] {
            let client = connect(&by(protocol, server)).await;
            let mut watch = server.watch_commands().await;
            life_of_a_lock(&client, "k").await.expect("allowed");
            let texts = watch.count_of("EVAL").await;
            assert_eq!(texts, first, "acquire, set_count, renew, release");
        }
        // The server forgets the scripts, while requests share a connection.
        let client = connect(&url(server)).await;
        server.restart();
        let several = (0..50).map(async |n| {
            let lock = client.lock(format!("{n}")).lease(LASTING).wait(LONG);
            for _ in 0..3 {
                let guard = lock.acquire().await.expect("free");
                guard.release().await.expect("held");
            }
        });
        within(LONG, "requests that share a connection", join_all(several)).await;
        assert_eq!(warnings(server), Vec::<String>::new());
    }))
    .await;
    let only_loading = ["script|load".to_owned()].into();
    assert_eq!(acl::refused(&refuses).await, only_loading);
}

#[tokio::test]
async fn a_prefix_of_its_own_needs_permissions_for_nothing_else() {
    let mut rules = all_but("~lock:*");
    rules.retain(|rule| *rule != "&lock:*");
    rules.extend(["~billing:lock:*", "&billing:lock:*"]);
    let server = server_with(&rules);
    let client = builder().prefix("billing:lock:");
    let client = client.connect(&url(&server)).await.expect("it is up");
    life_of_a_lock(&client, "k").await.expect("allowed");
    assert_eq!(acl::refused(&server).await, BTreeSet::new());
    assert_eq!(warnings(&server), Vec::<String>::new());
}

#[tokio::test]
async fn exclusion_holds_whichever_permission_is_missing() {
    let missing = NEEDED[1..].iter().chain(&BETTER);
    join_all(missing.map(async |left_out| {
        let server = server_with(&all_but(left_out));
        // A request that times out would look like one that is refused.
        let client = || connect_with(LONG, url(&server));
        let (one, other) = (client().await, client().await);
        let take = async |client: &LockClient, key: &str, mode: LockMode| {
            let lock = client.lock(key).lease(LONG);
            let lock = match mode {
                LockMode::Shared => lock.shared(),
                LockMode::Permits { take, of } => lock.permits(of).take(take),
                _ => lock,
            };
            lock.try_acquire().await.ok().flatten()
        };
        let (exclusive, shared) = (LockMode::Exclusive, LockMode::Shared);
        let [permit, several] = [1, 2].map(|take| LockMode::Permits { take, of: take });
        for (key, first, second) in [
            ("a", shared, exclusive),
            ("b", permit, permit),
            ("c", permit, shared),
            ("f", several, permit),
            ("g", several, several),
            ("d", exclusive, shared),
        ] {
            let held = take(&one, key, first).await;
            let also_held = take(&other, key, second).await;
            let are_both = held.is_some_and(|held| held.is_valid()) && also_held.is_some();
            assert!(!are_both, "{left_out}: {first}, {second}");
        }
        if let Some(downgraded) = take(&one, "e", exclusive).await {
            downgraded.downgrade().expect("held");
            tokio::time::sleep(ms(200)).await;
            let also_held = take(&other, "e", exclusive).await;
            assert!(!downgraded.is_valid() || also_held.is_none(), "{left_out}");
        }
        // The first two cannot be released without a permission, and the last two must not join them.
        for (first, second) in [
            (permit, shared),
            (shared, permit),
            (several, permit),
            (shared, exclusive),
        ] {
            let key = format!("{first}, {second}");
            if let Some(held) = take(&one, &key, first).await {
                let _ = held.release().await;
            }
            let (next, again) = (
                take(&other, &key, second).await,
                take(&one, &key, first).await,
            );
            let held = [next, again];
            let valid = held.iter().flatten().filter(|held| held.is_valid());
            assert!(valid.count() <= 1, "{left_out}: {key}");
        }
    }))
    .await;
}

#[tokio::test]
async fn a_downgrade_that_the_server_refuses_loses_no_other_lock() {
    const LEASE: Duration = Duration::from_secs(15);
    let server = server_with(&all_but("+zadd"));
    let client = connect(&url(&server)).await;
    let locks = (0..8).map(|n| client.lock(format!("k{n}")).lease(LEASE).acquire());
    let held = join_all(locks).await;
    let held: Vec<_> = held.into_iter().map(|held| held.expect("free")).collect();
    held[0].downgrade().expect("held");
    within(LONG, "its lease ends", held[0].lost()).await;
    tokio::time::sleep(ms(500)).await;
    for held in &held[1..] {
        assert!(held.is_valid(), "{}", held.key());
    }
}

#[tokio::test]
async fn a_writer_keeps_its_place_though_it_cannot_be_notified() {
    let server = server_with(&all_but("+publish"));
    let clients = [(); 3].map(|()| async { connect(&url(&server)).await });
    let [one, other, third] = join_all(clients).await.try_into().expect("three");
    let reader = one.lock("k").shared().lease(LASTING);
    let reader = reader.acquire().await.expect("free");
    let waiting = enqueued(&server, other.lock("k").wait(LONG)).await;
    let late = third.lock("k").shared().try_acquire().await;
    assert!(late.expect("a reply").is_none(), "a writer waits");
    reader.release().await.expect("held");
    its_turn(waiting).await.release().await.expect("held");
}
