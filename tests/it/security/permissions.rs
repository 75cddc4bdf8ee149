//! The permissions of a client, with one left out at a time. `docs/security.md` lists them.

mod beyond;

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError, LostCause, Mode};
use rlock_testkit::{Exclusion, RedisServer, block_on, eventually, within};
use tokio::runtime::Builder;

use crate::common::log::{keep_log, logged_of};
use crate::common::{
    LASTING, LONG, acl, acquiring, assert_lost, assert_soon_free, assert_soon_queued, connect,
    hand_over, its_turn, ms, name, notices_a_loss, resp2, timed,
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
    // For cheaper renewals.
    "+hsetnx",
];

/// A permission without which locks are as fast.
const NAMES: &str = "+client|setname";

/// More than a notification takes, and less than a waiter's timer of five seconds.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Starts a server with a user that has only these permissions.
fn server_with(rules: &[&str]) -> RedisServer {
    keep_log();
    let rules = format!("on >secret resetchannels {}", rules.join(" "));
    RedisServer::builder().acl_user("locker", &rules).start()
}

fn url(server: &RedisServer) -> String {
    server.url_as("locker", "secret")
}

fn all() -> Vec<&'static str> {
    [&NEEDED[..], &BETTER[..], &[NAMES]].concat()
}

fn all_but(left_out: &str) -> Vec<&'static str> {
    let mut rules = all();
    rules.retain(|rule| *rule != left_out);
    rules
}

/// Since Redis 7 a server can report the permissions of a user.
async fn reports_permissions(server: &RedisServer) -> bool {
    let ask = "return redis.acl_check_cmd and 1 or 0";
    server.command::<u64>(&["EVAL", ask, "0"]).await == 1
}

/// Returns the warnings of this server's clients about permissions.
fn warnings(server: &RedisServer) -> Vec<String> {
    let mut lines = logged_of(&server.address());
    lines.retain(|line| line.contains("lacks permissions"));
    lines
}

/// Acquires, renews, enters and releases. Returns the step that failed with its error.
async fn life_of_a_lock(client: &LockClient, key: &str) -> Result<(), (&'static str, LockError)> {
    let lock = client.lock(key).lease(ms(1500)).wait(LONG);
    let outer = lock.acquire().await.map_err(|error| ("take", error))?;
    let inner = outer.scope(lock.acquire()).await;
    let inner = inner.map_err(|error| ("enter", error))?;
    tokio::time::sleep(ms(2000)).await;
    inner.release().await.map_err(|error| ("leave", error))?;
    assert!(outer.is_valid(), "renewed");
    outer.release().await.map_err(|error| ("release", error))?;
    // The next grant reads the fence.
    let again = lock.acquire().await.map_err(|error| ("take", error))?;
    again.release().await.map_err(|error| ("release", error))
}

/// Lets tasks of two processes contend for a lock. Panics if two are inside at once, or if one gets
/// no turn.
async fn assert_one_at_a_time(server: &RedisServer, what: &str) {
    let exclusion = Exclusion::new();
    let clients = [connect(&url(server)).await, connect(&url(server)).await];
    let tasks = (0..6).map(|task| {
        let lock = clients[task % 2].lock("shared").lease(ms(600)).wait(LONG);
        let exclusion = exclusion.clone();
        tokio::spawn(async move {
            for _ in 0..3 {
                let guard = lock.acquire().await.expect("its turn");
                let inside = exclusion.enter(format!("task {task}"));
                tokio::time::sleep(ms(5)).await;
                drop(inside);
                guard.release().await.expect("held");
            }
        })
    });
    for task in within(LONG * 2, what, join_all(tasks)).await {
        task.expect("no panic");
    }
    exclusion.assert_held();
}

/// Returns how long a waiter over this protocol takes.
async fn hand_over_by(protocol: &str, server: &RedisServer, one: &LockClient) -> Duration {
    hand_over(one, &format!("{}?protocol={protocol}", url(server))).await
}

#[test]
fn the_list_is_that_of_the_documentation() {
    let documented = acl::of_a_server();
    let documented: BTreeSet<&str> = documented.split(' ').collect();
    assert_eq!(documented, all().into_iter().collect());
}

#[tokio::test]
async fn the_least_permissions_are_enough_for_everything() {
    let with_one_key = async |by_resp2: bool| {
        let server = server_with(&NEEDED);
        let url = url(&server);
        let client = connect(&if by_resp2 { resp2(&url) } else { url }).await;
        life_of_a_lock(&client, "k").await.expect("allowed");
        drop(client.lock("k").acquire().await.expect("free"));
        assert_soon_free(&server, "k").await;
        assert!(hand_over_by("resp3", &server, &client).await < LONG / 2);
        server
    };
    let with_a_loss = async |by_resp2: bool| {
        let server = server_with(&NEEDED);
        let url = url(&server);
        let client = connect(&if by_resp2 { resp2(&url) } else { url }).await;
        assert!(
            notices_a_loss(&server, &client).await < ms(8000),
            "by a renewal"
        );
        server
    };
    let with_many = async {
        let server = server_with(&NEEDED);
        assert_one_at_a_time(&server, "with the least permissions").await;
        server
    };
    let (one, two, three, four, five) = tokio::join!(
        with_one_key(false),
        with_one_key(true),
        with_a_loss(false),
        with_a_loss(true),
        with_many
    );
    for server in [one, two, three, four, five] {
        if !reports_permissions(&server).await {
            continue;
        }
        let said = warnings(&server);
        assert!(!said.is_empty());
        for line in said {
            assert!(line.contains("WARN"), "{line}");
            for rule in BETTER {
                let command = rule
                    .trim_start_matches(['+', '&'])
                    .replace("lock:*", "publish");
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
    assert!(hand_over_by("resp3", &server, &one).await < AT_ONCE);
    assert!(hand_over_by("resp2", &server, &one).await < AT_ONCE);
    assert!(notices_a_loss(&server, &one).await < AT_ONCE);
    let guard = one.lock("k").acquire().await.expect("free");
    let info = one.inspect("k").await.expect("allowed").expect("held");
    assert_eq!(info.owner, guard.owner().to_string());
    guard.release().await.expect("held");
    let several = [one.lock("a"), one.lock("b").at_least(ms(50))];
    for lock in several {
        let guard = lock.acquire().await.expect("free");
        guard.release().await.expect("held");
    }
    assert_one_at_a_time(&server, "with all permissions").await;
    assert_eq!(
        acl::refused(&server).await,
        BTreeSet::new(),
        "nothing was refused"
    );
    assert_eq!(warnings(&server), Vec::<String>::new());
}

/// Such a call first makes a round trip over the background connection.
#[test]
fn a_call_without_its_own_connection_needs_no_other_permission() {
    let runtime = || Builder::new_current_thread().enable_all().build();
    let (outside, ends) = (runtime().expect("a runtime"), runtime().expect("a runtime"));
    let server = server_with(&all());
    let client = ends.block_on(connect(&url(&server)));
    let handle = ends.handle().clone();
    ends.shutdown_background();
    let _inside = handle.enter();
    block_on(async {
        let guard = client.lock("k").acquire().await.expect("free");
        guard.release().await.expect("held");
    });
    let refused = outside.block_on(acl::refused(&server));
    assert_eq!(refused, BTreeSet::new(), "nothing was refused");
}

/// Runs the life of a lock that fails at this step. Returns the error, and checks that nothing is
/// left.
async fn fails_at(
    server: &RedisServer,
    client: &LockClient,
    key: &str,
    step: &str,
    left_out: &str,
) -> String {
    let (failed, error) = life_of_a_lock(client, key).await.expect_err(left_out);
    // A call that repeats its acquire needs the same as a nested one.
    let is_repeated = step == "enter" && failed == "take";
    assert!(
        failed == step || is_repeated,
        "{failed}, {left_out}: {error}"
    );
    let said = error.to_string();
    match (step, &error) {
        // Renewals are refused, and repeated until the lease ends.
        ("leave", LockError::Lost { cause, .. }) => assert_eq!(*cause, LostCause::Expired),
        ("release", LockError::Store { .. }) => {
            assert!(
                said.starts_with(&format!("could not release lock `{key}`")),
                "{said}"
            );
        }
        (_, LockError::Store { .. }) => {
            assert!(
                said.starts_with(&format!("could not acquire lock `{key}`")),
                "{said}"
            );
        }
        _ => panic!("{left_out}: {error:?}"),
    }
    // A refused acquire leaves nothing. After a refused release the lease ends.
    let what = format!("nothing is left of `{key}` without {left_out}");
    eventually(LONG, &what, async || !server.exists(&name(key)).await).await;
    said
}

#[tokio::test]
async fn a_user_without_a_needed_permission_gets_an_error_and_leaves_nothing_behind() {
    let fails = [
        ("~lock:*", "take"),
        ("+evalsha", "take"),
        ("+script|load", "take"),
        ("+get", "enter"),
        ("+hdel", "release"),
        ("+hexists", "leave"),
        ("+hget", "enter"),
        ("+hset", "take"),
        ("+pexpire", "take"),
        ("+pttl", "enter"),
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
        // Connecting needs none of them: a client may start before it gets its permissions.
        let client = connect(&url(&server)).await;
        let said = fails_at(&server, &client, "k", step, left_out).await;
        let command = left_out.trim_start_matches('+');
        let by_script = !matches!(left_out, "~lock:*" | "+evalsha" | "+script|load");
        if by_script && reports_permissions(&server).await {
            let mut said = warnings(&server);
            said.retain(|line| !line.contains("\"hsetnx\""));
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains("ERROR") && said[0].contains(&format!("\"{command}\"")));
        } else if left_out == "~lock:*" || left_out == "+script|load" {
            assert!(said.contains("permission"), "{said}");
            if left_out == "~lock:*" && reports_permissions(&server).await {
                let said = warnings(&server);
                assert_eq!(said.len(), 1, "{said:?}");
                assert!(said[0].contains("ERROR") && said[0].contains("\"~lock:*\""));
            }
        } else if left_out == "+evalsha" {
            assert!(said.contains("evalsha"), "{said}");
        }
    }))
    .await;
}

#[tokio::test]
async fn a_retained_lock_is_released_for_a_waiter_that_cannot_join_the_queue() {
    let server = server_with(&all_but("+zadd"));
    let (owner, other) = (connect(&url(&server)).await, connect(&url(&server)).await);
    let retained = owner.lock("k").lease(LASTING).retain(LASTING);
    let guard = retained.acquire().await.expect("free");
    guard.release().await.expect("held");
    let (next, took) = timed(other.lock("k").wait(LONG).acquire()).await;
    next.expect("given back").release().await.expect("held");
    assert!(took < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn a_user_without_an_optional_permission_has_slower_locks_and_a_warning() {
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
    ];
    assert_eq!(slower.map(|(left_out, ..)| left_out), BETTER);
    join_all(slower.map(|(left_out, notified, losses)| async move {
        let server = server_with(&all_but(left_out));
        let one = connect(&url(&server)).await;
        let outcome = life_of_a_lock(&one, "k").await;
        outcome.unwrap_or_else(|(step, error)| panic!("{left_out}: {step}: {error}"));
        for protocol in ["resp3", "resp2"] {
            let took = hand_over_by(protocol, &server, &one).await;
            // With RESP3 the first waiter, or one without a place, is notified of the change, and retries.
            let notified = notified || protocol == "resp3";
            let bound = if notified { AT_ONCE } else { ms(9000) };
            assert!(took < bound, "{left_out}, {protocol}: {took:?}");
            // With RESP2 the first waiter retries every two seconds.
            assert!(
                notified || took > ms(700),
                "{left_out}, {protocol}: {took:?}"
            );
            assert!(took < ms(9000), "{left_out}: by the timer, {took:?}");
        }
        let took = notices_a_loss(&server, &one).await;
        assert_eq!(took < AT_ONCE, losses, "{left_out}: {took:?}");
        assert!(took < ms(8000), "{left_out}: by a renewal, {took:?}");
        assert_one_at_a_time(&server, left_out).await;
        if reports_permissions(&server).await {
            let command = left_out
                .trim_start_matches(['+', '&'])
                .replace("lock:*", "publish");
            let said = warnings(&server);
            assert!(!said.is_empty());
            let named = |line: &String| line.contains("WARN") && line.contains(&command);
            assert!(said.iter().all(named), "{left_out}: {said:?}");
        }
    }))
    .await;
}

#[tokio::test]
async fn without_the_permission_to_name_connections_nothing_is_slower_and_nothing_is_logged() {
    let server = server_with(&all_but(NAMES));
    let one = connect(&url(&server)).await;
    life_of_a_lock(&one, "k").await.expect("allowed");
    for protocol in ["resp3", "resp2"] {
        assert!(hand_over_by(protocol, &server, &one).await < AT_ONCE);
    }
    assert!(notices_a_loss(&server, &one).await < AT_ONCE);
    assert_eq!(warnings(&server), Vec::<String>::new());
    let refused = acl::refused(&server).await;
    assert_eq!(refused, ["client|setname".to_owned()].into());
}

/// The first requests of a client precede its use, so they should cost one round trip.
#[tokio::test]
async fn a_client_asks_once_for_its_permissions() {
    let server = RedisServer::start();
    for known in [false, true] {
        let mut watch = server.watch_commands().await;
        drop(connect(&server.url()).await);
        assert_eq!(watch.count_of("EVALSHA").await, 1, "known: {known}");
    }
}

/// Checks a user that may not load scripts, after another client has loaded them.
#[tokio::test]
async fn a_refusal_is_reported_without_the_permission_to_load_scripts() {
    let mut rules = all_but("+script|load");
    rules.retain(|rule| *rule != "+publish");
    let server = server_with(&rules);
    if !reports_permissions(&server).await {
        return;
    }
    drop(connect(&url(&server)).await);
    assert_eq!(
        warnings(&server),
        Vec::<String>::new(),
        "no server reports permissions"
    );
    drop(connect(&server.url()).await);
    drop(connect(&url(&server)).await);
    let said = warnings(&server);
    assert_eq!(said.len(), 2, "{said:?}");
    for (level, permission) in [("ERROR", "\"script|load\""), ("WARN", "\"publish\"")] {
        let reported = |line: &String| line.contains(level) && line.contains(permission);
        assert!(said.iter().any(reported), "{permission}: {said:?}");
    }
}

#[tokio::test]
async fn every_missing_permission_is_reported_of_a_user_who_may_do_next_to_nothing() {
    for rules in [
        &["~lock:*", "+evalsha"][..],
        &["~lock:*", "+evalsha", "+time"],
        &["~lock:*", "+evalsha", "+time", "+exists"],
        &["~lock:*", "+evalsha", "+get"],
        &["~billing:*", "&billing:*", "+@all"],
    ] {
        let server = server_with(rules);
        if !reports_permissions(&server).await {
            return;
        }
        // Loads the scripts.
        drop(connect(&server.url()).await);
        drop(connect(&url(&server)).await);
        let expected = if rules.contains(&"+@all") {
            [vec!["~lock:*"], vec!["&lock:*", "subscribe", "publish"]]
        } else {
            [&NEEDED[..], &BETTER[..]].map(|part| {
                let missing = part.iter().filter(|rule| !rules.contains(rule));
                missing.map(|rule| rule.trim_start_matches('+')).collect()
            })
        };
        let said = warnings(&server);
        assert_eq!(said.len(), 2, "{rules:?}: {said:?}");
        for (level, permissions) in ["ERROR", "WARN"].into_iter().zip(expected) {
            let line = said.iter().find(|line| line.contains(level));
            let line = line.expect(level);
            let (_, listed) = line.split_once("permissions=\"").expect("a list");
            let (listed, _) = listed.split_once('"').expect("it ends");
            let listed: BTreeSet<&str> = listed.split(", ").collect();
            assert_eq!(listed, permissions.into_iter().collect(), "{rules:?}");
        }
    }
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
    for server in [&refuses, &unknown] {
        for protocol in ["resp3", "resp2"] {
            let url = format!("{}?protocol={protocol}", url(server));
            let client = connect(&url).await;
            let mut watch = server.watch_commands().await;
            life_of_a_lock(&client, "k").await.expect("allowed");
            life_of_a_lock(&client, "k").await.expect("allowed");
            let first = if protocol == "resp3" { 3 } else { 0 };
            let texts = watch.count_of("EVAL").await;
            assert_eq!(texts, first, "acquire, renew, release");
        }
        assert_one_at_a_time(server, "without SCRIPT LOAD").await;
        // The server forgets the scripts, while requests share a connection.
        let client = connect(&url(server)).await;
        server.restart();
        let several = (0..50).map(async |n| {
            let lock = client.lock(format!("{n}")).wait(LONG);
            for _ in 0..3 {
                let guard = lock.acquire().await.expect("free");
                guard.release().await.expect("held");
            }
        });
        within(LONG, "requests that share a connection", join_all(several)).await;
        assert_eq!(warnings(server), Vec::<String>::new());
    }
    assert_eq!(
        acl::refused(&refuses).await,
        ["script|load".to_owned()].into()
    );
}

/// The server cannot tell a user of some locks from a user of another prefix.
#[tokio::test]
async fn permissions_for_some_locks_only_are_enough_for_these() {
    let mut rules = all_but("~lock:*");
    rules.push("~lock:{order:*");
    let server = server_with(&rules);
    let client = connect(&url(&server)).await;
    let guard = client.lock("order:1").acquire().await.expect("free");
    guard.release().await.expect("held");
    let error = client
        .lock("user:1")
        .acquire()
        .await
        .expect_err("another's");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    if reports_permissions(&server).await {
        let said = warnings(&server);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("\"~lock:*\""), "{said:?}");
    }
}

#[tokio::test]
async fn a_prefix_of_its_own_needs_permissions_for_nothing_else() {
    let rules = all()
        .into_iter()
        .map(|rule| rule.replace("lock:", "billing:lock:"));
    let rules: Vec<String> = rules.collect();
    let server = server_with(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    let builder = LockClient::builder().prefix("billing:lock:");
    let client = builder
        .connect(&url(&server))
        .await
        .expect("the server is up");
    life_of_a_lock(&client, "k").await.expect("allowed");
    assert_eq!(
        acl::refused(&server).await,
        BTreeSet::new(),
        "nothing was refused"
    );
    let error = life_of_a_lock(&connect(&url(&server)).await, "k").await;
    assert!(
        matches!(error, Err(("take", LockError::Store { .. }))),
        "{error:?}"
    );
}

#[tokio::test]
async fn permissions_that_are_taken_away_while_a_lock_is_held_end_it_with_its_lease() {
    let server = server_with(&all());
    let client = connect(&url(&server)).await;
    let guard = client.lock("k").lease(ms(900)).acquire().await;
    let guard = guard.expect("free");
    let () = server.command(&["ACL", "SETUSER", "locker", "-@all"]).await;
    assert_lost(&guard, LONG, LostCause::Expired).await;
    assert_soon_free(&server, "k").await;
    let error = client
        .lock("k")
        .wait(LONG)
        .acquire()
        .await
        .expect_err("refused");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    let mut rules = vec!["ACL", "SETUSER", "locker"];
    rules.extend(all());
    let () = server.command(&rules).await;
    let guard = client.lock("k").acquire().await.expect("allowed again");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn without_any_permission_a_lock_is_shared_only_by_those_that_may_share_it() {
    let missing = NEEDED
        .iter()
        .chain(&BETTER)
        .filter(|rule| **rule != "~lock:*");
    join_all(missing.map(async |left_out| {
        let server = server_with(&all_but(left_out));
        let one = connect(&url(&server)).await;
        let other = connect(&url(&server)).await;
        let take = async |client: &LockClient, key: &str, mode: Mode| {
            let lock = client.lock(key).lease(LONG);
            let lock = match mode {
                Mode::Shared => lock.shared(),
                Mode::Permits(permits) => lock.permits(permits),
                _ => lock,
            };
            lock.try_acquire().await.ok().flatten()
        };
        let (exclusive, shared, permit) = (Mode::Exclusive, Mode::Shared, Mode::Permits(1));
        for (key, first, second) in [
            ("a", shared, exclusive),
            ("b", permit, permit),
            ("c", permit, shared),
            ("d", exclusive, shared),
        ] {
            let held = take(&one, key, first).await;
            let beside = take(&other, key, second).await;
            let are_both = held.is_some_and(|held| held.is_valid()) && beside.is_some();
            assert!(!are_both, "{left_out}: {first}, {second}");
        }
        if let Some(downgraded) = take(&one, "e", exclusive).await {
            downgraded.downgrade().expect("held");
            tokio::time::sleep(ms(200)).await;
            let beside = take(&other, "e", exclusive).await;
            assert!(!downgraded.is_valid() || beside.is_none(), "{left_out}");
        }
        // The first two cannot be released without a permission, and the last two must not join them.
        for (first, second) in [(permit, shared), (shared, permit), (shared, exclusive)] {
            let key = format!("{first}, {second}");
            drop(take(&one, &key, first).await);
            tokio::time::sleep(ms(200)).await;
            let held = [
                take(&other, &key, second).await,
                take(&one, &key, first).await,
            ];
            let valid = held.iter().flatten().filter(|held| held.is_valid());
            assert!(valid.count() <= 1, "{left_out}: {key}");
        }
    }))
    .await;
}

#[tokio::test]
async fn a_downgrade_that_the_server_refuses_loses_no_other_lock() {
    let server = server_with(&all_but("+zadd"));
    let client = connect(&url(&server)).await;
    let locks = (0..8).map(|n| client.lock(format!("k{n}")).lease(ms(1_500)).acquire());
    let held = join_all(locks).await;
    let held: Vec<_> = held.into_iter().map(|held| held.expect("free")).collect();
    held[0].downgrade().expect("held");
    tokio::time::sleep(ms(4_000)).await;
    for held in &held[1..] {
        assert!(held.is_valid(), "{}", held.key());
    }
}

#[tokio::test]
async fn a_release_that_may_not_let_all_readers_in_lets_the_first_in() {
    let server = server_with(&all_but("+hgetall"));
    let one = connect(&url(&server)).await;
    let others = [connect(&server.url()).await, connect(&server.url()).await];
    let writer = one.lock("k").lease(LONG).acquire().await.expect("free");
    let readers = others.map(|client| acquiring(client.lock("k").shared().wait(LONG)));
    assert_soon_queued(&server, "k", 2).await;
    writer.release().await.expect("released");
    for reader in readers {
        let (reader, took) = timed(its_turn(reader)).await;
        assert!(took < ms(7_000), "{took:?}");
        reader.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_writer_keeps_its_place_though_it_cannot_be_notified() {
    let server = server_with(&all_but("+publish"));
    let clients = [(); 3].map(|()| async { connect(&url(&server)).await });
    let [one, other, third] = join_all(clients).await.try_into().expect("three");
    let reader = one.lock("k").shared().acquire().await.expect("free");
    let waiting = acquiring(other.lock("k").wait(LONG));
    assert_soon_queued(&server, "k", 1).await;
    let late = third.lock("k").shared().try_acquire().await;
    assert!(late.expect("a reply").is_none(), "a writer waits");
    reader.release().await.expect("held");
    its_turn(waiting).await.release().await.expect("held");
}
