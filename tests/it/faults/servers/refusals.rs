//! Refusals of a server, by error word. Temporary ones are retried within the wait, permanent ones
//! fail at once.

use std::{collections::BTreeSet, future::pending, time::Duration};

use futures_util::future::join_all;
use rlock_core::{ErrorKind, LockClient};
use rlock_testkit::{RedisServer, eventually, within};
use tokio::sync::mpsc;

use crate::common::{
    LASTING, LONG, acquiring, assert_refused, assert_soon_free, assert_unavailable, builder,
    client, connect, count, enqueued, hold, its_turn,
    log::{keep_log, logged_of},
    ms, name, resp2,
};
use crate::leases::clock::HOUR;

/// Checks that a call ends with this word although the server does not recover.
async fn assert_error_contains(client: &LockClient, word: &str) {
    // The first calls may meet the connection before the server's error is known.
    eventually(LONG, word, async || {
        let shown = assert_unavailable(client.lock("new").wait(ms(400)).acquire().await, "refused");
        assert!(shown.contains("`new`"), "{shown}");
        shown.to_uppercase().contains(word)
    })
    .await;
}

/// Like [`assert_error_contains`], and a waiter is served when the server has recovered.
async fn assert_waited_for(client: &LockClient, word: &str, passes: impl Future<Output = ()>) {
    assert_error_contains(client, word).await;
    let waiting = acquiring(client.lock("new").lease(LASTING).wait(LONG * 2));
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished(), "{word}: it waits");
    passes.await;
    its_turn(waiting).await.release().await.expect("held");
}

/// The server loads slowly until the error has been seen.
#[tokio::test]
async fn a_server_that_loads_its_data_is_waited_for_and_has_the_locks_that_were_saved() {
    let server = RedisServer::builder()
        .debug_commands()
        .slow_to_load(ms(2))
        .start();
    let one = client(&server).await;
    let held = one.lock("held").lease(HOUR).acquire().await.expect("free");
    let () = server.command(&["DEBUG", "POPULATE", "60000"]).await;
    server.save().await;
    server.restart_with_data();
    assert_error_contains(&one, "LOADING").await;
    let other = client(&server).await;
    server.config_set("key-load-delay", "0").await;
    for client in [&one, &other] {
        let new = client.lock("new").wait(LONG * 2).acquire().await;
        new.expect("loaded").release().await.expect("held");
    }
    assert!(held.is_valid());
    assert_eq!(count(&server, &held).await, Some(1));
    held.release().await.expect("the server has kept it");
    assert!(!server.exists(&name("held")).await);
}

#[tokio::test]
async fn a_demoted_master_and_a_replica_without_its_master_are_waited_for() {
    let (master, server) = (RedisServer::start(), RedisServer::start());
    let client = client(&server).await;
    server.follow(&master).await;
    assert_waited_for(&client, "READONLY", server.promote()).await;
    master.kill();
    server.config_set("replica-serve-stale-data", "no").await;
    server.follow_in_vain(&master).await;
    assert_waited_for(&client, "MASTERDOWN", server.promote()).await;
}

#[tokio::test]
async fn a_cluster_that_is_down_is_waited_for() {
    let server = RedisServer::builder()
        .config("cluster-enabled", "yes")
        .start();
    let client = client(&server).await;
    let serve_all = server.serve_slots(0..=16383);
    assert_waited_for(&client, "CLUSTERDOWN", serve_all).await;
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_is_waited_for() {
    let server = RedisServer::builder()
        .config("lua-time-limit", "50")
        .start();
    let client = client(&server).await;
    let held = client.lock("held").lease(HOUR).acquire().await;
    let held = held.expect("free");
    let (mut busy, mut killer) = (server.connection().await, server.connection().await);
    let busy = tokio::spawn(async move {
        let mut script = redis::cmd("EVAL");
        script.arg("while true do end").arg("0");
        script.query_async::<redis::Value>(&mut busy).await
    });
    eventually(LONG, "it runs", async || {
        let ping: Result<String, _> = redis::cmd("PING").query_async(&mut killer).await;
        ping.is_err()
    })
    .await;
    let ending = async {
        let mut kill = redis::cmd("SCRIPT");
        let outcome = kill.arg("KILL").query_async::<()>(&mut killer).await;
        outcome.expect("it has written nothing");
    };
    assert_waited_for(&client, "BUSY", ending).await;
    busy.await.expect("no panic").expect_err("it was killed");
    held.release().await.expect("held");
}

#[tokio::test]
async fn a_server_that_cannot_save_is_full_or_lacks_its_replicas_is_waited_for() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let held = client.lock("held").lease(HOUR).acquire().await;
    let held = held.expect("free");
    server.let_saves_fail().await;
    assert_waited_for(&client, "MISCONF", server.let_saves_succeed()).await;
    server.config_set("min-replicas-to-write", "1").await;
    let enough = server.config_set("min-replicas-to-write", "0");
    assert_waited_for(&client, "NOREPLICAS", enough).await;
    server.config_set("maxmemory", "1").await;
    assert_waited_for(&client, "OOM", server.config_set("maxmemory", "0")).await;
    held.release().await.expect("held");
}

/// The background repeats a refused release.
#[tokio::test]
async fn a_release_that_is_refused_is_done_when_the_server_lets_it() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(HOUR);
    // The explicit release fails in time and continues in the background. A dropped guard is
    // released in the background from the start.
    for dropped in [false, true] {
        let guard = lock.acquire().await.expect("free");
        server.config_set("min-replicas-to-write", "1").await;
        if dropped {
            drop(guard);
        } else {
            let shown = assert_unavailable(guard.release().await, "refused");
            assert!(shown.contains("release lock `k`"), "{shown}");
            assert!(shown.contains("NOREPLICAS"), "{shown}");
        }
        tokio::time::sleep(ms(300)).await;
        assert!(server.exists(&name("k")).await, "it cannot be released");
        server.config_set("min-replicas-to-write", "0").await;
        assert_soon_free(&server, "k").await;
    }
}

/// Returns a server, and a client with all permissions.
async fn trusted() -> (RedisServer, LockClient) {
    let rules = "on >secret ~* &* +@all";
    let server = RedisServer::builder().acl_user("locker", rules).start();
    let client = connect(&server.url_as("locker", "secret")).await;
    (server, client)
}

#[tokio::test]
async fn a_client_that_is_logged_out_is_refused_at_once_and_comes_back_by_itself() {
    let (server, client) = trusted().await;
    server.set_user("locker", "off").await;
    server.kill_all_clients().await;
    let refused = client.lock("k").wait(HOUR).acquire();
    assert_refused(within(LONG, "it is refused", refused).await, "logged out");
    server.set_user("locker", "on").await;
    let lock = client.lock("k").wait(LONG);
    eventually(LONG, "the client reconnects", async || {
        lock.try_acquire().await.is_ok()
    })
    .await;
}

/// The candidate asks again and again, and logs each different refusal once.
#[tokio::test]
async fn a_candidate_asks_again_until_an_operator_ends_the_refusal() {
    keep_log();
    let (server, client) = trusted().await;
    for (name, refusal, mended) in [
        ("refused-command", "-evalsha", "+evalsha"),
        ("refused-keys", "resetkeys", "~*"),
        ("refused-login", "off", "on"),
    ] {
        let of_it = || logged_of(&format!("election={name} "));
        let run = client.election(name).run(async |term| term.token());
        server.set_user("locker", refusal).await;
        server.kill_all_clients().await;
        let led = tokio::spawn(run);
        eventually(LONG, "it is refused again and again", async || {
            of_it().len() > 3
        })
        .await;
        server.set_user("locker", mended).await;
        let term = within(LONG, "it leads", led).await.expect("no panic");
        term.expect("the refusal was mended");
        let lines = of_it();
        let error = |line: &String| line.split_once("error=").map(|(_, error)| error.to_owned());
        let errors: BTreeSet<_> = lines.iter().filter_map(error).collect();
        let warnings = lines.iter().filter(|line| line.contains(" WARN "));
        assert_eq!(warnings.count(), errors.len(), "{lines:?}");
        assert!(lines.len() > errors.len() + 1, "{lines:?}");
        let last = lines.last().expect("it is logged");
        assert!(
            last.contains(" INFO ") && last.contains("refusals="),
            "{last}"
        );
    }
}

/// The leader loses its lock while the store refuses it.
#[tokio::test]
async fn a_refused_leader_leads_again_once_an_operator_ends_the_refusal() {
    let (server, client) = trusted().await;
    let (sender, mut terms) = mpsc::unbounded_channel();
    let election = client.election("scheduler").lease(ms(500));
    let run = election.run(move |term| {
        let _ = sender.send(term.token());
        pending::<()>()
    });
    let led = tokio::spawn(run);
    let first = within(LONG, "it leads", terms.recv()).await.expect("runs");
    server.set_user("locker", "-evalsha").await;
    // Not renewed.
    assert_soon_free(&server, "scheduler").await;
    server.set_user("locker", "+evalsha").await;
    let second = within(LONG, "it leads again", terms.recv()).await;
    assert!(second.expect("runs") > first);
    client.shutdown().await.expect("the store replies");
    let error = within(LONG, "it ends", led)
        .await
        .expect("no panic")
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closing, "{error}");
}

/// Redis does not undo what a script wrote before one of its commands was refused. Without
/// `PEXPIRE`, the next waiter cannot be granted the lock either.
#[tokio::test]
async fn a_refusal_in_the_middle_of_a_release_does_not_undo_it_nor_fail_it() {
    // Waiters without a notification come by their timers. In parallel, because that takes seconds.
    let refusals = [
        "-publish",
        "resetchannels",
        "-zpopmin",
        "-set",
        "-exists",
        "-pexpire",
    ];
    join_all(refusals.map(|refused| async move {
        let (server, client) = trusted().await;
        let waiter = connect(&server.url()).await;
        let guard = hold(&client, "k").await;
        let waiting = enqueued(&server, waiter.lock("k").lease(LASTING).wait(LONG)).await;
        server.set_user("locker", refused).await;
        let owner = guard.owner();
        let outcome = guard.release().await;
        outcome.unwrap_or_else(|error| panic!("{refused}: {error}"));
        let left = server.hgetall(&name("k")).await;
        assert!(!left.contains_key(&owner), "{refused}: {left:?}");
        its_turn(waiting).await.release().await.expect("held");
    }))
    .await;
}

/// What an acquire wrote before one of its commands was refused is rolled back by the same script.
#[tokio::test]
async fn a_refusal_in_the_middle_of_an_acquire_leaves_nothing_taken() {
    let (server, client) = trusted().await;
    for refused in ["-pexpire", "-hset", "-set", "-time"] {
        server.set_user("locker", refused).await;
        for wait in [Duration::ZERO, HOUR] {
            let asking = client.lock("k").wait(wait).acquire();
            assert_refused(within(LONG, refused, asking).await, refused);
            assert!(!server.exists(&name("k")).await, "{refused}");
        }
        server.set_user("locker", "+@all").await;
        let guard = client.lock("k").acquire().await.expect("free");
        guard.release().await.expect("held");
    }
}

/// The server closes a new connection without reading from it.
#[tokio::test]
async fn a_server_with_too_many_clients_is_waited_for_and_the_likely_reason_is_shown() {
    const REASON: &str = "MAXCLIENTS";
    let plain = RedisServer::start();
    let with_password = RedisServer::builder().password("secret").start();
    for (server, url) in [
        (&plain, plain.url()),
        (&with_password, resp2(&with_password.url())),
    ] {
        let only = server.connection().await;
        let limit = async |most: u32| {
            let (mut limit, mut only) = (redis::cmd("CONFIG"), only.clone());
            let limit = limit.arg("SET").arg("maxclients").arg(most);
            let () = limit.query_async(&mut only).await.expect("it may");
        };
        limit(1).await;
        let said = assert_unavailable(builder().connect(&url).await, "refused");
        assert!(said.to_uppercase().contains(REASON), "{said}");
        let client = LockClient::connect_lazy(&url).expect("valid");
        assert_waited_for(&client, REASON, limit(10_000)).await;
    }
}
