//! The two connections of a client: the background connection, and a second one on the runtime that made the client.

use std::{collections::BTreeSet, thread};

use pollster::block_on;
use rlock_core::{LockClient, LostCause};
use rlock_testkit::{Proxy, RedisServer, eventually};
use tokio::runtime::Runtime;

use super::single;
use crate::{
    common::{
        LONG, assert_lost, assert_nothing_left, assert_soon_free, client, connect_with,
        connections::{Listed, both, both_in_use, cycle, script_connections},
        ms, name,
    },
    leases::clock::HOUR,
};

fn cycle_blocking(client: &LockClient) {
    let lock = client.lock("k").wait(LONG);
    lock.run_blocking(|| ()).expect("free");
}

/// Connects a client that replaces no connection just because the machine is slow.
async fn patient(url: &str) -> LockClient {
    connect_with(LONG, url).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_tasks_of_the_runtime_that_made_a_client_use_its_second_connection() {
    let server = RedisServer::start();
    let made = patient(&server.url()).await;
    let (background, callers) = both_in_use(&server, &made).await;
    let subscriptions = [&background, &callers].map(|one| one.fact("sub="));
    assert_eq!(
        subscriptions,
        ["1", "0"],
        "notifications wake no caller's thread"
    );
    let mut watch = server.watch_commands().await;
    let mut assert_used = async |connection: &Listed, what: &str| {
        let expected = [connection.fact("addr=").to_owned()].into();
        assert_eq!(script_connections(&mut watch).await, expected, "{what}");
    };
    cycle(&made).await;
    assert_used(&callers, "the test itself").await;
    let task = made.clone();
    let task = tokio::spawn(async move { cycle(&task).await });
    task.await.expect("no panic");
    assert_used(&callers, "a task").await;

    let blocking = made.clone();
    let blocking = tokio::task::spawn_blocking(move || cycle_blocking(&blocking));
    blocking.await.expect("no panic");
    assert_used(&background, "spawn_blocking").await;
    tokio::task::block_in_place(|| cycle_blocking(&made));
    assert_used(&background, "block_in_place").await;
    let ways: [(_, fn(&LockClient)); 3] = [
        ("a thread", cycle_blocking),
        ("another runtime", |made| single().block_on(cycle(made))),
        ("no runtime", |made| block_on(cycle(made))),
    ];
    for (what, way) in ways {
        thread::scope(|threads| threads.spawn(|| way(&made)).join()).expect("no panic");
        assert_used(&background, what).await;
    }
    let guard = made.lock("k").wait(LONG).acquire().await.expect("free");
    assert_used(&callers, "an acquire").await;
    drop(guard);
    assert_soon_free(&server, "k").await;
    assert_used(&background, "a release in the background").await;
    drop(made);
    eventually(LONG, "both are closed", async || {
        server.client_count().await == 0
    })
    .await;
}

#[test]
fn a_client_whose_runtime_is_gone_is_used_from_another() {
    let server = RedisServer::start();
    let first = Runtime::new().expect("a runtime");
    let made = first.block_on(client(&server));
    let lock = made.lock("before").lease(HOUR).wait(LONG);
    let before = first.block_on(lock.acquire()).expect("free");
    let waiting = first.spawn(async move { lock.acquire().await });
    let handle = first.handle().clone();
    first.shutdown_timeout(LONG);
    let inside = handle.enter();
    block_on(cycle(&made));
    drop(inside);
    single().block_on(async {
        assert!(waiting.await.expect_err("dropped").is_cancelled());
        cycle(&made).await;
        let lock = made.lock("later").lease(HOUR).wait(LONG);
        let later = lock.acquire().await.expect("free");
        for guard in [before, later] {
            assert!(server.del(&name(guard.key())).await);
            assert_lost(&guard, LONG, LostCause::Removed).await;
        }
        made.shutdown().await.expect("everything is released");
        assert_nothing_left(&server).await;
    });
}

/// The client redirects the reports right before it sends the lock's request.
#[tokio::test]
async fn the_first_lock_after_a_connection_was_replaced_is_watched() {
    let server = RedisServer::start();
    let made = patient(&server.url()).await;
    for cuts in [[true, false], [false, true], [true, true]] {
        let (background, callers) = both_in_use(&server, &made).await;
        let mut former = BTreeSet::new();
        for (cut, connection) in cuts.into_iter().zip([background, callers]) {
            if cut {
                let words = ["CLIENT", "KILL", "ID", connection.fact("id=")];
                assert_eq!(server.command::<u64>(&words).await, 1);
                former.insert(connection.fact("id=").to_owned());
            }
        }
        eventually(LONG, "both connections are new", async || {
            let both = both(&server).await;
            both.is_some_and(|(one, other)| {
                [one, other]
                    .iter()
                    .all(|one| !former.contains(one.fact("id=")))
            })
        })
        .await;
        let lock = made.lock("k").lease(HOUR).wait(LONG);
        let guard = lock.acquire().await.expect("free");
        assert!(server.del(&name("k")).await);
        assert_lost(&guard, LONG, LostCause::Removed).await;
    }
}

/// The proxy holds the request back on one connection. A release over the other one must not overtake it.
#[tokio::test]
async fn an_acquire_in_doubt_is_undone_behind_it() {
    for by_thread in [false, true] {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        let made = patient(&proxy.url()).await;
        let _ = both_in_use(&server, &made).await;
        // The background connection is the first one. The other is the last, because it may have taken several attempts.
        let connection = if by_thread {
            0
        } else {
            proxy.connections() - 1
        };
        proxy.hold_requests_of(connection);
        let lock = made.lock("doubt").lease(HOUR);
        let cancelled = async || {
            let mut call = Box::pin(lock.acquire());
            tokio::select! {
                biased;
                () = eventually(LONG, "it is sent", async || proxy.holds()) => {}
                early = &mut call => panic!("it used another connection: {early:?}"),
            }
        };
        if by_thread {
            thread::scope(|scope| {
                scope.spawn(|| single().block_on(cancelled()));
            });
        } else {
            cancelled().await;
        }
        // Time in which a release could overtake the request.
        tokio::time::sleep(ms(300)).await;
        proxy.pass();
        eventually(LONG, "the server has executed the acquire", async || {
            server.exists(&format!("{}:fence", name("doubt"))).await
        })
        .await;
        assert_soon_free(&server, "doubt").await;
        assert_nothing_left(&server).await;
    }
}
