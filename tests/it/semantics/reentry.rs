//! Re-entry: along the call chain, counted at the store, and nowhere else.

use futures_util::future::BoxFuture;
use rlock_core::{InCurrentScope, LockClient, LockError, Reentry, current};
use rlock_testkit::{Proxy, RedisServer, Witness, eventually, within};
use tokio::{
    sync::{mpsc, oneshot},
    task::{LocalSet, yield_now},
};

use crate::{
    common::{
        LONG, assert_soon_counted as assert_soon_shown, builder, connect_with,
        connections::both_in_use, ms, name,
    },
    leases::clock::HOUR,
};

/// Waits until the store shows this number of entries; 0 without a holder.
async fn assert_soon_counted(client: &LockClient, key: &str, entries: u32) {
    eventually(LONG, "the store counts the entries", async || {
        let info = client.inspect(key).await.expect("a reply");
        info.map_or(0, |info| info.depth) == entries
    })
    .await;
}

#[tokio::test]
async fn branches_of_a_join_inside_one_lock_do_not_enter_each_others_new_locks() {
    let client = LockClient::in_memory();
    let inside = Witness::new();
    let outer = client.lock("outer");
    let branch = async || {
        let entered = outer.run(async { current().expect("inside").depth() });
        assert!(
            entered.await.expect("enters") >= 2,
            "both enter the outer lock"
        );
        let lock = client.lock("inner").wait(LONG);
        let body = async {
            let _inside = inside.hold(&current().expect("inside"));
            for _ in 0..10 {
                yield_now().await;
            }
            current().expect("inside").token()
        };
        lock.run(body).await.expect("granted")
    };
    let body = async { tokio::join!(branch(), branch()) };
    let (left, right) = outer.run(body).await.expect("free");
    assert_ne!(left, right, "each branch has a hold of its own");
    inside.assert_held();
}

/// The tasks of a `LocalSet` are polled within the poll of the body.
#[tokio::test]
async fn a_spawned_task_is_not_inside_even_if_the_body_itself_polls_it() {
    let client = LockClient::in_memory();
    let nested = || {
        let lock = client.lock("order:1").wait(ms(200));
        async move {
            let is_inside = current().is_some();
            (is_inside, lock.acquire().await.map(|guard| guard.depth()))
        }
    };
    let body = async {
        let spawned = tokio::spawn(nested()).await;
        let polls = LocalSet::new();
        let outside = polls.run_until(polls.spawn_local(nested())).await;
        let carried = polls.spawn_local(nested().in_current_scope());
        let inside = polls.run_until(carried).await;
        let own = polls.run_until(nested()).await;
        [spawned, outside, inside, Ok(own)].map(|outcome| outcome.expect("no panic"))
    };
    let [spawned, outside, inside, own] = client.lock("order:1").run(body).await.expect("free");
    for outside in [spawned, outside] {
        assert!(
            matches!(outside, (false, Err(LockError::Taken { .. }))),
            "{outside:?}"
        );
    }
    for inside in [inside, own] {
        assert!(matches!(inside, (true, Ok(2))), "{inside:?}");
    }
}

/// Locks, and spawns the next task inside the lock.
fn next_task(client: LockClient, left: u32, end: mpsc::Sender<()>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let lock = client.lock("order:1").wait_forever();
        let body = async {
            if left > 0 {
                let next = next_task(client.clone(), left - 1, end);
                tokio::spawn(next.in_current_scope());
            } else {
                end.send(()).await.expect("the test waits");
            }
        };
        lock.run(body).await.expect("enters");
    })
}

#[tokio::test]
async fn tasks_that_carry_the_scope_on_and_on_do_not_collect_ended_holds() {
    let client = builder().reentry(Reentry::Local).in_memory();
    let client = client.expect("a client");
    let (end, mut ended) = mpsc::channel(1);
    // A chain of all holds would overflow the stack when it is dropped.
    tokio::spawn(next_task(client, 20_000, end));
    assert_eq!(ended.recv().await, Some(()));
}

#[tokio::test]
async fn a_spawned_task_is_inside_on_purpose_for_as_long_as_it_runs() {
    let client = LockClient::in_memory();
    let lock = client.lock("order:1");
    let [(go, word), (late_go, late_word), (inside, entered)] =
        [(); 3].map(|()| oneshot::channel::<()>());
    let nested = lock.clone();
    let child = async move {
        let guard = nested.acquire().await.expect("enters");
        inside.send(()).expect("the body waits");
        word.await.expect("sent");
        guard.release().await.expect("held");
        late_word.await.expect("sent");
        nested.acquire().await.expect("free again").owner()
    };
    let body = async {
        let child = tokio::spawn(child.in_current_scope());
        entered.await.expect("the child runs");
        assert_soon_counted(&client, "order:1", 2).await;
        (child, current().expect("inside").owner())
    };
    let (child, owner) = lock.run(body).await.expect("free");
    // The outer entry is gone, the child's is not.
    assert_soon_counted(&client, "order:1", 1).await;
    go.send(()).expect("the child waits");
    let next = lock.clone().wait(LONG).acquire().await;
    next.expect("the child leaves")
        .release()
        .await
        .expect("held");
    // A task that outlives the hold asks for the lock afresh.
    late_go.send(()).expect("the child waits");
    assert_ne!(child.await.expect("no panic"), owner);
}

#[tokio::test]
async fn a_lock_costs_two_requests_and_local_reentry_none() {
    let server = RedisServer::start();
    let client = builder().reentry(Reentry::Local).response_timeout(LONG);
    let client = client.connect(&server.url()).await;
    let client = client.expect("the server is up");
    // Otherwise the watch would also count the commands that set up the second connection.
    both_in_use(&server, &client).await;
    // No renewal is due.
    let lock = client.lock("order:1").lease(HOUR);
    let mut commands = server.watch_commands().await;
    for _ in 0..10 {
        let guard = lock.acquire().await.expect("free");
        let inner = guard.scope(lock.run(async { current().expect("inside").depth() }));
        assert_eq!(inner.await.expect("enters"), 2);
        guard.release().await.expect("held");
    }
    let seen = commands.seen().await;
    assert_eq!(seen.len(), 20, "{seen:?}");
    assert!(seen.iter().all(|command| command.is("EVALSHA")), "{seen:?}");
}

#[tokio::test]
async fn a_nested_call_waits_for_no_server_which_counts_it_later() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect_with(LONG, &proxy.url()).await;
    // No renewal is due.
    let lock = client.lock("k").lease(HOUR);
    let outer = lock.acquire().await.expect("free");
    proxy.hold_requests();
    let nested = async { outer.scope(lock.acquire()).await.expect("enters") };
    let nested = within(LONG, "it enters", nested).await;
    assert_eq!(outer.depth(), 2);
    proxy.pass();
    assert_soon_shown(&server, &outer, 2).await;
    proxy.hold_requests();
    within(LONG, "it leaves", nested.release())
        .await
        .expect("held");
    proxy.pass();
    assert_soon_shown(&server, &outer, 1).await;
    outer.release().await.expect("held");
    assert!(!server.exists(&name("k")).await);
}
