//! Re-entry: along the call chain, counted at the store, and nowhere else.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use rlock_core::{InCurrentScope, LockClient, LockError, Reentry, current, distributed_lock};
use rlock_testkit::RedisServer;
use tokio::{sync::mpsc, task::LocalSet};

use crate::common::{client, connect_with};

const SOON: Duration = Duration::from_millis(200);

/// Returns the server's count for the only owner of `key`; 0 without a holder.
async fn count(server: &RedisServer, key: &str) -> u32 {
    let hash = server.hgetall(&format!("lock:{{{key}}}")).await;
    assert!(hash.len() <= 1, "more than one owner: {hash:?}");
    hash.values()
        .next()
        .map_or(0, |count| count.parse().expect("a number"))
}

#[tokio::test]
async fn a_nested_call_shows_as_count_2_then_1_then_no_key() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("order:42");
    let outer = lock.acquire().await.expect("free");
    assert_eq!(count(&server, "order:42").await, 1);
    outer
        .scope(async {
            let inner = lock.acquire().await.expect("enters");
            assert_eq!(inner.owner(), outer.owner());
            assert_eq!(inner.fencing_token(), outer.fencing_token());
            assert_eq!(count(&server, "order:42").await, 2);
            assert_eq!(inner.count(), 2);
            inner.release().await.expect("held");
        })
        .await;
    assert_eq!(count(&server, "order:42").await, 1);
    outer.release().await.expect("held");
    assert!(!server.exists("lock:{order:42}").await);
}

#[tokio::test]
async fn annotated_methods_that_call_each_other_enter() {
    struct Orders {
        locks: LockClient,
        server: RedisServer,
        counts: Mutex<Vec<u32>>,
    }
    impl Orders {
        async fn note(&self, id: u64) {
            let count = count(&self.server, &format!("order:{id}")).await;
            self.counts.lock().expect("no panic").push(count);
        }

        #[distributed_lock(key = "order:<id>", client = self.locks)]
        async fn check_out(&self, id: u64) -> Result<(), LockError> {
            self.note(id).await;
            self.pay(id).await?;
            self.note(id).await;
            Ok(())
        }

        #[distributed_lock(key = "order:<id>", client = self.locks)]
        async fn pay(&self, id: u64) -> Result<(), LockError> {
            self.note(id).await;
            Ok(())
        }
    }
    let server = RedisServer::start();
    let locks = client(&server).await;
    let orders = Orders {
        locks,
        server,
        counts: Mutex::default(),
    };
    orders.check_out(7).await.expect("free");
    orders.note(7).await;
    assert_eq!(*orders.counts.lock().expect("no panic"), [1, 2, 1, 0]);
}

#[tokio::test]
async fn recursion_counts_up_and_down_again() {
    fn descend<'a>(
        client: &'a LockClient,
        server: &'a RedisServer,
        depth: u32,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            let lock = client.lock("deep");
            lock.run(async {
                assert_eq!(count(server, "deep").await, depth);
                if depth < 20 {
                    descend(client, server, depth + 1).await;
                }
                assert_eq!(count(server, "deep").await, depth);
            })
            .await
            .expect("enters");
        })
    }
    let server = RedisServer::start();
    let client = client(&server).await;
    descend(&client, &server, 1).await;
    assert_eq!(count(&server, "deep").await, 0);
}

#[distributed_lock(key = "deep:<of>")]
async fn a_thousand_deep(of: &str, left: u32) -> Result<u32, LockError> {
    if left == 0 {
        return Ok(current().map_or(0, |hold| hold.count()));
    }
    Box::pin(a_thousand_deep(of, left - 1)).await
}

#[test]
fn recursion_a_thousand_deep_unwinds_to_no_key() {
    // Debug builds need far more stack for each call than release builds do.
    let deep = std::thread::Builder::new().stack_size(64 << 20).spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let server = RedisServer::start();
            let client = client(&server).await;
            let depth = client.scope(a_thousand_deep("here", 999)).await;
            assert_eq!(depth.expect("enters"), 1000);
            assert_eq!(count(&server, "deep:here").await, 0);
        });
    });
    deep.expect("a thread").join().expect("no panic");
}

#[tokio::test]
async fn branches_of_a_join_inside_one_lock_do_not_enter_each_others_new_locks() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let inside = rlock_testkit::Exclusion::new();
    let branch = |name: &'static str| {
        let (client, inside) = (client.clone(), inside.clone());
        async move {
            let lock = client.lock("inner");
            lock.run(async {
                let _inside = inside.enter(name);
                tokio::time::sleep(SOON).await;
                current().expect("inside").fencing_token()
            })
            .await
            .expect("granted")
        }
    };
    let outer = client.lock("outer");
    let body = async { tokio::join!(branch("left"), branch("right")) };
    let (left, right) = outer.run(body).await.expect("free");
    assert_ne!(left, right, "each branch has a hold of its own");
    inside.assert_held();
}

#[tokio::test]
async fn both_branches_of_a_join_enter_the_lock_that_they_are_inside() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("outer");
    let enter = || async { lock.run(async { tokio::time::sleep(SOON).await }).await };
    let (left, right) = lock
        .run(async { tokio::join!(enter(), enter()) })
        .await
        .expect("free");
    left.expect("entered");
    right.expect("entered");
    assert_eq!(count(&server, "outer").await, 0);
}

#[tokio::test]
async fn a_spawned_task_is_not_inside() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let nested = client.lock("order:1").wait(SOON);
    let body = async {
        let child = tokio::spawn(async move { nested.acquire().await.map(drop) });
        child.await.expect("no panic")
    };
    let outcome = client.lock("order:1").run(body).await.expect("free");
    assert!(
        matches!(outcome, Err(LockError::Timeout { .. })),
        "{outcome:?}"
    );
}

/// The tasks of a `LocalSet` are polled within the poll of the body.
#[tokio::test]
async fn a_task_that_the_body_itself_polls_is_not_inside() {
    let client = LockClient::in_memory();
    let nested = || {
        let lock = client.lock("order:1").wait(SOON);
        async move {
            let is_inside = current().is_some();
            (is_inside, lock.acquire().await.map(|guard| guard.count()))
        }
    };
    let body = async {
        let polls = LocalSet::new();
        let outside = polls.run_until(polls.spawn_local(nested())).await;
        let carried = polls.spawn_local(nested().in_current_scope());
        let inside = polls.run_until(carried).await;
        let own = polls.run_until(nested()).await;
        [outside.expect("no panic"), inside.expect("no panic"), own]
    };
    let [outside, inside, own] = client.lock("order:1").run(body).await.expect("free");
    assert!(
        matches!(outside, (false, Err(LockError::Timeout { .. }))),
        "{outside:?}"
    );
    for inside in [inside, own] {
        assert!(matches!(inside, (true, Ok(2))), "{inside:?}");
    }
}

/// Locks, and spawns the next task inside of the lock.
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
    let client = LockClient::builder().reentry(Reentry::Local).in_memory();
    let client = client.expect("a client");
    let (end, mut ended) = mpsc::channel(1);
    // A chain of all holds would overflow the stack when it is dropped.
    tokio::spawn(next_task(client, 20_000, end));
    assert_eq!(ended.recv().await, Some(()));
}

#[tokio::test]
async fn a_spawned_task_is_inside_on_purpose_for_as_long_as_it_runs() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let nested = client.lock("order:1").wait(SOON);
    let go_on = Arc::new(tokio::sync::Notify::new());
    let entered = Arc::new(tokio::sync::Notify::new());
    let child = {
        let (go_on, entered) = (Arc::clone(&go_on), Arc::clone(&entered));
        async move {
            let guard = nested.acquire().await.expect("enters");
            entered.notify_one();
            go_on.notified().await;
            guard.release().await.expect("held");
        }
    };
    let body = async {
        let child = tokio::spawn(child.in_current_scope());
        entered.notified().await;
        assert_eq!(count(&server, "order:1").await, 2);
        (child,)
    };
    let (child,) = client.lock("order:1").run(body).await.expect("free");
    assert_eq!(
        count(&server, "order:1").await,
        1,
        "the outer entry is gone, the child's is not"
    );
    go_on.notify_one();
    child.await.expect("no panic");
    assert_eq!(count(&server, "order:1").await, 0);
}

#[tokio::test]
async fn a_task_that_outlives_the_hold_asks_for_the_lock_afresh() {
    let client = LockClient::in_memory();
    let nested = client.lock("order:1");
    let go_on = Arc::new(tokio::sync::Notify::new());
    let child = {
        let go_on = Arc::clone(&go_on);
        async move {
            go_on.notified().await;
            nested.acquire().await.expect("free again").owner()
        }
    };
    let body = async {
        let owner = current().expect("inside").owner();
        (owner, tokio::spawn(child.in_current_scope()))
    };
    let (outer, child) = client.lock("order:1").run(body).await.expect("free");
    go_on.notify_one();
    assert_ne!(child.await.expect("no panic"), outer);
}

#[tokio::test]
async fn another_client_of_the_same_server_is_not_inside() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let body = async { other.lock("order:1").try_acquire().await };
    let outcome = one.lock("order:1").run(body).await.expect("free");
    assert!(outcome.expect("a reply").is_none());
}

#[tokio::test]
async fn local_reentry_costs_no_command_and_shows_count_1() {
    let server = RedisServer::start();
    let client = LockClient::builder()
        .reentry(Reentry::Local)
        .connect(&server.url())
        .await;
    let client = client.expect("the server is up");
    let lock = client.lock("order:1");
    let mut commands = server.watch_commands().await;
    let body = async {
        commands.seen().await;
        commands.clear().await;
        for _ in 0..10 {
            let depth = lock.run(async { current().expect("inside").count() }).await;
            assert_eq!(depth.expect("enters"), 2);
        }
        assert_eq!(commands.count_of("EVALSHA").await, 0);
        assert_eq!(count(&server, "order:1").await, 1);
    };
    lock.run(body).await.expect("free");
    assert_eq!(count(&server, "order:1").await, 0);
}

#[tokio::test]
async fn one_uncontended_acquire_and_release_costs_two_commands() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut commands = server.watch_commands().await;
    for _ in 0..10 {
        let guard = client.lock("order:1").acquire().await.expect("free");
        guard.release().await.expect("held");
    }
    let seen = commands.seen().await;
    assert_eq!(seen.len(), 20, "{seen:?}");
    assert!(seen.iter().all(|command| command.is("EVALSHA")), "{seen:?}");
}

#[tokio::test]
async fn nested_calls_with_a_shorter_lease_do_not_put_the_renewal_off() {
    let server = RedisServer::start();
    let clients = [LockClient::in_memory(), client(&server).await];
    let nested = clients.map(async |client| {
        let lock = client.lock("order:1").lease(Duration::from_millis(1200));
        let brief = client.lock("order:1").lease(Duration::from_millis(50));
        let body = async {
            for _ in 0..20 {
                brief.run(async {}).await.expect("enters");
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
        };
        lock.run(body).await.expect("renewed all along");
    });
    join_all(nested).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entering_while_the_outer_entry_leaves_neither_loses_nor_leaks_the_hold() {
    let client = LockClient::in_memory();
    for round in 0..2000 {
        let lock = client.lock("order:1").lease(Duration::from_secs(2));
        let outer = lock.acquire().await.expect("free");
        let (inner,) = outer
            .scope(async { (lock.clone().acquire_in_scope(),) })
            .await;
        let inner = tokio::spawn(inner);
        outer.release().await.expect("held");
        let inner = inner
            .await
            .expect("no panic")
            .expect("entered or taken afresh");
        assert!(inner.is_valid(), "round {round}");
        inner.release().await.expect("held");
    }
    // The watchdog has to watch this hold to notify it of the end of its lease.
    let brief = client
        .lock("order:1")
        .lease(Duration::from_millis(100))
        .watchdog(false);
    let guard = brief.acquire().await.expect("free");
    rlock_testkit::within(
        Duration::from_secs(20),
        "the loss is notified",
        guard.lost(),
    )
    .await;
}

/// An acquire that another task can continue inside the current scope.
trait AcquireInScope {
    fn acquire_in_scope(self) -> Pin<Box<dyn Future<Output = Acquired> + Send>>;
}

type Acquired = Result<rlock_core::LockGuard, LockError>;

impl AcquireInScope for rlock_core::Lock {
    fn acquire_in_scope(self) -> Pin<Box<dyn Future<Output = Acquired> + Send>> {
        Box::pin(async move { self.acquire().await }.in_current_scope())
    }
}

#[tokio::test]
async fn many_nested_entries_at_once_wait_for_each_other() {
    let server = RedisServer::start();
    let proxy = rlock_testkit::Proxy::in_front_of(&server);
    let client = connect_with(Duration::from_millis(500), &proxy.url()).await;
    let lock = client.lock("order:1");
    proxy.delay_replies(Duration::from_millis(10));
    let body = async {
        let entries = (0..60).map(|_| lock.acquire());
        let entries = futures_util::future::join_all(entries).await;
        entries.into_iter().filter(Result::is_err).count()
    };
    assert_eq!(lock.run(body).await.expect("free"), 0);
}

#[tokio::test]
async fn a_nested_acquire_that_is_not_polled_does_not_delay_a_release() {
    let server = RedisServer::start();
    let client = connect_with(Duration::from_millis(300), &server.url()).await;
    let lock = client.lock("order:1");
    let guard = lock.acquire().await.expect("free");
    let inside = guard.scope(async { (lock.clone().acquire_in_scope(),) });
    let (mut nested,) = inside.await;
    // The first poll starts the request. Nothing awaits it afterwards.
    let polled =
        std::future::poll_fn(|cx| std::task::Poll::Ready(nested.as_mut().poll(cx).is_pending()));
    assert!(polled.await);
    let release = guard.release();
    let released = rlock_testkit::within(Duration::from_secs(20), "it ends", release).await;
    released.expect("the release follows the other request");
    drop(nested);
    let gone = async || count(&server, "order:1").await == 0;
    rlock_testkit::eventually(Duration::from_secs(20), "the background releases it", gone).await;
}

#[tokio::test]
async fn a_call_of_an_ended_hold_does_not_enter_the_hold_that_took_its_ownership_over() {
    for reentry in [Reentry::Counted, Reentry::Local] {
        let client = LockClient::builder().reentry(reentry).in_memory();
        let client = client.expect("valid options");
        let lock = client.lock("k").wait(Duration::from_secs(10));
        let outer = lock.acquire().await.expect("free");
        let late = lock.clone().wait(Duration::ZERO);
        #[expect(
            clippy::async_yields_async,
            reason = "the future is to outlive the scope"
        )]
        let late = outer.scope(async { async move { late.acquire().await }.in_current_scope() });
        let late = late.await;
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await }
        });
        tokio::task::yield_now().await;
        let (owner, token) = (outer.owner(), outer.fencing_token());
        outer.release().await.expect("held");
        let next = waiting.await.expect("no panic").expect("its turn");
        assert_eq!(next.owner(), owner, "the ownership is handed over");
        assert!(next.fencing_token() > token);
        let entered = late.await;
        assert!(entered.is_err(), "two holders: {entered:?} and {next:?}");
        next.release().await.expect("held");
    }
}
