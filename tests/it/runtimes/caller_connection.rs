//! The caller's connection, on the runtime that made the client, and the background connection.
//!
//! Tests of their routing, and of locks when a connection or the runtime is gone or blocked.

use std::{
    collections::BTreeSet,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rlock_core::{LockClient, LockGuard, LostCause};
use rlock_testkit::{
    ClientCommand, CommandWatch, Gate, Proxy, RedisServer, Way, block_on, eventually,
};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::common::{
    LASTING, LONG, acquiring, assert_lost, assert_nothing_left, assert_soon_free,
    assert_soon_queued, builder, client, connect, dropped_when_woken_after, hold, its_turn, ms,
    name, polled, resp2, resp2_client,
    speed::{assert_within, in_time, in_time_blocking},
    timed, wait_queue,
};

/// The server pushes a loss. Renewals would find it later.
const PUSHED: Duration = Duration::from_secs(4);

fn single() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// A connection as the server lists it.
#[derive(Debug, Clone)]
struct Listed {
    id: String,
    address: String,
    /// The server redirects its invalidations for this connection.
    is_redirected: bool,
    /// The connection that receives the invalidations instead.
    redirected_to: String,
}

/// Returns the connections of the only client.
async fn connections(server: &RedisServer) -> Vec<Listed> {
    let list: String = server.command(&["CLIENT", "LIST"]).await;
    let parse = |line: &str| {
        let fact = |name: &str| {
            let mut words = line.split(' ');
            words
                .find_map(|word| word.strip_prefix(name))
                .unwrap_or("")
                .to_owned()
        };
        // The fixture connects through the socket.
        (!fact("addr=").contains('/')).then(|| Listed {
            id: fact("id="),
            address: fact("addr="),
            is_redirected: !["-1", "0"].contains(&fact("redir=").as_str()),
            redirected_to: fact("redir="),
        })
    };
    list.lines().filter_map(parse).collect()
}

/// Returns the background connection, and the caller's connection.
async fn background_and_caller(server: &RedisServer) -> (Listed, Listed) {
    let all = connections(server).await;
    let (caller, background): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|listed| listed.is_redirected);
    match (background.as_slice(), caller.as_slice()) {
        ([background], [caller]) => (background.clone(), caller.clone()),
        _ => panic!("not one of each: {background:?} {caller:?}"),
    }
}

async fn cut(server: &RedisServer, connection: &Listed) {
    let killed: u64 = server
        .command(&["CLIENT", "KILL", "ID", &connection.id])
        .await;
    assert_eq!(killed, 1);
}

/// Closes a connection, and waits for its replacement.
async fn kill(server: &RedisServer, connection: &Listed) {
    cut(server, connection).await;
    eventually(LONG, "there is another", async || {
        let all = connections(server).await;
        all.len() == 2
            && all.iter().all(|listed| listed.id != connection.id)
            && all.iter().any(|listed| !listed.is_redirected)
    })
    .await;
    // The client needs a moment to set up the connection.
    tokio::time::sleep(ms(300)).await;
}

/// Returns the connections that sent scripts since the last call.
async fn script_connections(watch: &mut CommandWatch) -> BTreeSet<String> {
    let scripts = |command: &&ClientCommand| command.is("EVALSHA");
    let ways = watch
        .seen()
        .await
        .iter()
        .filter(scripts)
        .map(|command| command.client.clone());
    let ways = ways.collect();
    watch.clear().await;
    ways
}

async fn cycle(client: &LockClient, key: &str) {
    let guard = client.lock(key).acquire().await.expect("free");
    guard.release().await.expect("held");
}

fn cycle_blocking(client: &LockClient, key: &str) {
    client.lock(key).run_blocking(|| ()).expect("free");
}

#[tokio::test]
async fn a_client_has_a_connection_of_its_own_and_one_on_the_runtime_that_made_it() {
    let server = RedisServer::start();
    let made = client(&server).await;
    assert_eq!(server.client_count().await, 2);
    cycle(&made, "k").await;
    assert_eq!(server.client_count().await, 2);
    drop(made);
    eventually(LONG, "both are closed", async || {
        server.client_count().await == 0
    })
    .await;

    // RESP2 needs another connection for messages.
    let made = resp2_client(&server).await;
    assert_eq!(server.client_count().await, 3);
    cycle(&made, "k").await;
    made.shutdown().await.expect("everything is released");
    drop(made);
    eventually(LONG, "all are closed", async || {
        server.client_count().await == 0
    })
    .await;
}

#[test]
fn where_there_is_no_runtime_or_the_client_is_not_to_use_it_the_clients_own_serves() {
    let server = RedisServer::start();
    let outside = single();
    let bare = Builder::new_current_thread().build().expect("a runtime");
    let on_none = block_on(builder().connect(&server.url()));
    let on_none = on_none.expect("the server is up");
    let on_bare = bare.block_on(LockClient::connect(&server.url()));
    let on_bare = on_bare.expect("the server is up");
    assert_eq!(outside.block_on(server.client_count()), 2);
    for made in [&on_none, &on_bare] {
        block_on(cycle(made, "k"));
        bare.block_on(cycle(made, "k"));
        outside.block_on(cycle(made, "k"));
        cycle_blocking(made, "k");
        // A wait that times out, and a wait that ends by a hand-over.
        let held = bare.block_on(hold(made, "k"));
        let lock = on_none.lock("k").wait(ms(300));
        bare.block_on(lock.acquire()).expect_err("taken");
        thread::scope(|threads| {
            let lock = on_bare.lock("k").wait(LONG);
            let waiting = threads.spawn(|| {
                let bare = Builder::new_current_thread().build().expect("a runtime");
                bare.block_on(async move { lock.acquire().await.map(drop) })
            });
            thread::sleep(ms(200));
            bare.block_on(held.release()).expect("held");
            waiting.join().expect("no panic").expect("its turn");
        });
        outside.block_on(assert_soon_free(&server, "k"));
    }
    outside.block_on(async {
        assert_eq!(server.client_count().await, 2);
        assert_nothing_left(&server).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_tasks_of_that_runtime_use_its_connection() {
    let server = RedisServer::start();
    let made = client(&server).await;
    let (background, caller) = background_and_caller(&server).await;
    let (background, caller) = ([background.address], [caller.address]);
    let assert_scripts_over = async |watch: &mut CommandWatch, way: &[String; 1], what: &str| {
        let expected: BTreeSet<_> = way.iter().cloned().collect();
        assert_eq!(script_connections(watch).await, expected, "{what}");
    };
    let mut watch = server.watch_commands().await;
    cycle(&made, "k").await;
    assert_scripts_over(&mut watch, &caller, "the test itself").await;
    let task = made.clone();
    tokio::spawn(async move { cycle(&task, "k").await })
        .await
        .expect("no panic");
    assert_scripts_over(&mut watch, &caller, "a task").await;

    let blocking = made.clone();
    tokio::task::spawn_blocking(move || cycle_blocking(&blocking, "k"))
        .await
        .expect("no panic");
    assert_scripts_over(&mut watch, &background, "spawn_blocking").await;
    tokio::task::block_in_place(|| cycle_blocking(&made, "k"));
    assert_scripts_over(&mut watch, &background, "block_in_place").await;
    thread::scope(|threads| {
        let thread = || cycle_blocking(&made, "k");
        threads.spawn(thread).join().expect("no panic");
    });
    assert_scripts_over(&mut watch, &background, "a thread").await;
    thread::scope(|threads| {
        let other = || single().block_on(cycle(&made, "k"));
        threads.spawn(other).join().expect("no panic");
    });
    assert_scripts_over(&mut watch, &background, "another runtime").await;
    thread::scope(|threads| {
        let none = || block_on(cycle(&made, "k"));
        threads.spawn(none).join().expect("no panic");
    });
    assert_scripts_over(&mut watch, &background, "no runtime").await;

    let guard = made.lock("k").lease(ms(600)).acquire().await.expect("free");
    assert_scripts_over(&mut watch, &caller, "an acquire").await;
    tokio::time::sleep(ms(900)).await;
    assert_scripts_over(&mut watch, &background, "renewals").await;
    drop(guard);
    assert_soon_free(&server, "k").await;
    assert_scripts_over(&mut watch, &background, "a release in the background").await;
}

/// A runtime that made a client, and blocks on demand.
struct Stuck {
    orders: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    done: mpsc::Receiver<()>,
    thread: Option<thread::JoinHandle<()>>,
    runtime: Handle,
}

impl Stuck {
    /// Also returns the client, and a guard that it acquired on that runtime.
    fn start(server: &RedisServer, lease: Duration) -> (Self, LockClient, LockGuard) {
        let url = server.url();
        let (orders, todo) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (finished, done) = mpsc::channel();
        let (give, made) = mpsc::channel();
        let thread = thread::spawn(move || {
            single().block_on(async {
                let made = connect(&url).await;
                let guard = made.lock("held").lease(lease).acquire().await;
                let made = (made, guard.expect("free"), Handle::current());
                give.send(made).expect("awaited");
                while let Ok(block) = todo.recv() {
                    block();
                    tokio::time::sleep(ms(50)).await;
                    finished.send(()).expect("awaited");
                }
            });
        });
        let (client, guard, runtime) = made.recv().expect("it connects");
        let stuck = Self {
            orders,
            done,
            thread: Some(thread),
            runtime,
        };
        (stuck, client, guard)
    }

    fn block(&self, how_long: Duration) {
        self.block_on(move || thread::sleep(how_long));
    }

    fn block_on(&self, what: impl FnOnce() + Send + 'static) {
        self.orders.send(Box::new(what)).expect("it reads");
    }

    fn end(mut self) {
        drop(self.orders);
        let thread = self.thread.take().expect("there");
        thread.join().expect("no panic");
    }
}

#[test]
fn a_blocked_runtime_delays_no_other() {
    const LEASE: Duration = Duration::from_millis(900);
    let server = RedisServer::start();
    let outside = single();
    let (stuck, made, guard) = Stuck::start(&server, LEASE);
    let other = Runtime::new().expect("a runtime");
    let started = Instant::now();
    // Its thread blocks on the channel even before that.
    let (go_on, is_over) = mpsc::channel::<()>();
    stuck.block_on(move || {
        let _ = is_over.recv();
    });
    let at_once = |what: &str, call: &mut dyn FnMut()| {
        let started = Instant::now();
        call();
        let took = started.elapsed();
        assert!(took < ms(2500), "{what}: {took:?}");
    };
    for _ in 0..4 {
        at_once("a thread", &mut || cycle_blocking(&made, "k"));
        at_once("another runtime", &mut || other.block_on(cycle(&made, "k")));
        at_once("no runtime", &mut || block_on(cycle(&made, "k")));
        at_once("a task of another runtime", &mut || {
            let made = made.clone();
            let task = other.spawn(async move { cycle(&made, "k").await });
            other.block_on(task).expect("no panic");
        });
        at_once("spawn_blocking", &mut || {
            let made = made.clone();
            let task = other.spawn_blocking(move || cycle_blocking(&made, "k"));
            other.block_on(task).expect("no panic");
        });
        at_once("spawn_blocking of that runtime", &mut || {
            let (made, (finished, done)) = (made.clone(), mpsc::channel());
            stuck.runtime.spawn_blocking(move || {
                cycle_blocking(&made, "k");
                finished.send(()).expect("awaited");
            });
            done.recv().expect("no panic");
        });
        // A wait, and its grant.
        let held = other.block_on(hold(&made, "k"));
        let waiting = {
            let lock = made.lock("k").wait(LONG);
            thread::spawn(move || lock.acquire_blocking().map(drop))
        };
        thread::sleep(ms(100));
        other.block_on(held.release()).expect("held");
        at_once("a hand-over", &mut || {
            while !waiting.is_finished() {
                thread::sleep(ms(5));
            }
        });
        waiting.join().expect("no panic").expect("its turn");
        thread::sleep(ms(400));
        assert!(guard.is_valid(), "renewed");
        assert!(outside.block_on(server.exists(&name("held"))));
    }
    assert!(started.elapsed() > LEASE * 2);
    assert!(stuck.done.try_recv().is_err(), "it is still blocked");
    // A thread elsewhere releases a guard of that runtime, in order.
    at_once("a release from elsewhere", &mut || {
        let guard = made.lock("third").acquire_blocking().expect("free");
        other.block_on(guard.release()).expect("held");
    });
    at_once("the guard from there", &mut || {
        assert!(outside.block_on(server.exists(&name("held"))));
    });
    let (outcome, took) = other.block_on(timed(guard.release()));
    outcome.expect("held");
    assert!(took < ms(2500), "{took:?}");
    drop(go_on);
    stuck.done.recv().expect("it goes on");
    stuck.end();
    outside.block_on(assert_nothing_left(&server));
}

/// The server pushes the loss over the connection that is not blocked.
#[test]
fn a_loss_is_reported_while_that_runtime_is_blocked() {
    let server = RedisServer::start();
    let outside = single();
    let (stuck, _made, guard) = Stuck::start(&server, LASTING);
    stuck.block(ms(3000));
    outside.block_on(async {
        assert!(server.del(&name("held")).await);
        assert_lost(&guard, ms(1500), LostCause::Removed).await;
    });
    drop(guard);
    stuck.done.recv().expect("it goes on");
    stuck.end();
}

/// An executor without Tokio blocks a task of that runtime. The runtime's connection is not polled
/// until the call ends.
#[test]
fn a_call_that_blocks_its_own_runtime_is_served_and_leaves_nothing_behind() {
    let server = RedisServer::start();
    let runtime = single();
    runtime.block_on(async {
        let made = client(&server).await;
        cycle(&made, "k").await;
        let started = Instant::now();
        let lock = made.lock("k").lease(LASTING).wait(LONG);
        let guard = block_on(lock.acquire()).expect("free");
        let took = started.elapsed();
        assert!(took < ms(5000), "{took:?}");
        block_on(guard.release()).expect("held");
        // Requests that were not sent before are dropped, or have no effect.
        tokio::time::sleep(ms(500)).await;
        assert_nothing_left(&server).await;
        let (guard, took) = timed(lock.acquire()).await;
        assert!(took < ms(2500), "{took:?}");
        guard.expect("free").release().await.expect("held");
        assert_nothing_left(&server).await;
    });
}

#[test]
fn a_client_whose_first_runtime_is_gone_is_used_from_another() {
    let server = RedisServer::start();
    let first = Runtime::new().expect("a runtime");
    let made = first.block_on(client(&server));
    let lasting = first.block_on(hold(&made, "lasting"));
    let brief = made.lock("brief").lease(ms(900));
    let brief = first.block_on(brief.acquire()).expect("free");
    // A waiter on that runtime is dropped with it.
    let taken = first.block_on(hold(&made, "taken"));
    let lock = made.lock("taken").wait(LONG);
    let waiting = first.spawn(async move { lock.acquire().await });
    first.shutdown_timeout(LONG);

    let second = single();
    second.block_on(async {
        assert!(waiting.await.expect_err("dropped").is_cancelled());
        let (answer, took) = timed(cycle(&made, "k")).await;
        let () = answer;
        assert!(took < ms(2500), "{took:?}");
        let own = made.clone();
        tokio::task::spawn_blocking(move || cycle_blocking(&own, "k"))
            .await
            .expect("no panic");
        tokio::time::sleep(ms(1500)).await;
        assert!(brief.is_valid() && server.exists(&name("brief")).await);
        brief.release().await.expect("held");
        taken.release().await.expect("held");
        cycle(&made, "taken").await;
        assert_eq!(server.client_count().await, 1);
        // Later locks are monitored as usual.
        let later = hold(&made, "later").await;
        assert!(server.del(&name("later")).await);
        assert_lost(&later, PUSHED, LostCause::Removed).await;
        drop(later);
        lasting.release().await.expect("held");
        made.shutdown().await.expect("everything is released");
        assert_nothing_left(&server).await;
    });
}

#[test]
fn a_lock_whose_runtime_is_gone_is_watched_still() {
    let server = RedisServer::start();
    let first = single();
    let made = first.block_on(client(&server));
    let guard = first.block_on(hold(&made, "k"));
    drop(first);
    single().block_on(async {
        eventually(LONG, "its connection is closed", async || {
            server.client_count().await == 1
        })
        .await;
        tokio::time::sleep(ms(300)).await;
        assert!(server.del(&name("k")).await);
        assert_lost(&guard, PUSHED, LostCause::Removed).await;
    });
}

#[tokio::test]
async fn an_acquire_that_is_cancelled_is_undone_by_the_way_that_it_took() {
    let server = RedisServer::start();
    let made = client(&server).await;
    let (_, caller) = background_and_caller(&server).await;
    let mut watch = server.watch_commands().await;
    let mut undone = 0;
    for polls in 0..12 {
        for woken in [false, true] {
            let lock = made.lock("k").lease(LASTING);
            let call = async { drop(lock.acquire().await) };
            if woken {
                let _ = tokio::time::timeout(ms(50), dropped_when_woken_after(polls, call)).await;
            } else {
                let _ = tokio::time::timeout(ms(50), polled(polls, call)).await;
            }
            let what = format!("after {polls} polls, {woken}");
            eventually(ms(3000), &what, async || !server.exists(&name("k")).await).await;
            // The request may still be on its way. Its release follows it.
            tokio::time::sleep(ms(20)).await;
            let seen = watch.seen().await;
            let scripts: Vec<_> = seen
                .iter()
                .filter(|command| command.is("EVALSHA"))
                .collect();
            // A request that was not sent before the drop is not sent at all.
            let (taken, given_back) = match scripts.as_slice() {
                [] => (None, None),
                [given_back] => (None, Some(given_back)),
                [taken, given_back] => (Some(taken), Some(given_back)),
                more => panic!("{what}: {more:?}"),
            };
            // In a release, the owner follows the lock.
            let owner = given_back.map(|command| &command.words[4]);
            assert!(owner.is_none_or(|owner| owner.contains('-')), "{what}");
            if let Some(taken) = taken {
                assert_eq!(taken.words.last(), owner, "{what}");
                assert_eq!(taken.client, caller.address, "{what}");
                let both = given_back.is_some_and(|command| command.client == caller.address);
                undone += usize::from(both);
            }
            watch.clear().await;
            assert!(!server.exists(&name("k")).await, "{what}");
        }
    }
    assert!(undone > 0, "some calls were cancelled before their reply");
    assert_nothing_left(&server).await;
}

/// The server is paused for longer than the client trusts a connection. After that it reads the background connection
/// first.
#[tokio::test]
async fn an_acquire_in_doubt_is_undone_although_its_connection_was_given_up() {
    let server = RedisServer::start();
    let made = client(&server).await;
    cycle(&made, "other").await;
    server.pause();
    let ping = {
        let made = made.clone();
        tokio::spawn(async move { made.ping().await })
    };
    tokio::time::sleep(ms(50)).await;
    let lock = made.lock("k").lease(LASTING).wait(ms(800));
    lock.acquire().await.expect_err("the server is paused");
    tokio::time::sleep(ms(100)).await;
    server.resume();
    let _ = ping.await.expect("no panic");
    eventually(LONG, "the server has read the acquire", async || {
        server.exists(&format!("{}:fence", name("k"))).await
    })
    .await;
    assert_nothing_left(&server).await;
}

/// A thread asks over the background connection, whose requests are held. The release must not overtake them.
#[tokio::test]
async fn an_acquire_in_doubt_of_a_thread_is_undone_behind_it() {
    let server = RedisServer::start();
    let gate = Gate::in_front_of(&server);
    let made = builder().response_timeout(LONG);
    let made = made.connect(&gate.url()).await.expect("it is up");
    cycle(&made, "other").await;
    gate.hold(BACKGROUND, Way::Requests);
    let lock = made.lock("k").lease(LASTING).wait(ms(300));
    let asked = tokio::task::spawn_blocking(move || lock.acquire_blocking().map(drop));
    asked.await.expect("no panic").expect_err("no reply");
    tokio::time::sleep(ms(300)).await;
    gate.pass(BACKGROUND, Way::Requests);
    eventually(LONG, "the server has read the acquire", async || {
        server.exists(&format!("{}:fence", name("k"))).await
    })
    .await;
    assert_soon_free(&server, "k").await;
    tokio::time::sleep(ms(300)).await;
    assert_nothing_left(&server).await;
}

/// A late reply to a call with a short wait says nothing about the connection.
#[tokio::test]
async fn a_short_wait_does_not_replace_the_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    cycle(&client, "k").await;
    let (_, before) = background_and_caller(&server).await;
    proxy.delay_replies(ms(30));
    for _ in 0..10 {
        let lock = client.lock("k").wait(ms(15));
        lock.acquire().await.expect_err("the reply is late");
    }
    proxy.pass();
    assert_soon_free(&server, "k").await;
    cycle(&client, "k").await;
    let (_, after) = background_and_caller(&server).await;
    assert_eq!(after.id, before.id);
}

/// The requests are on their way when the call is dropped, and run later.
#[tokio::test]
async fn an_acquire_that_is_cancelled_on_its_way_is_undone_behind_it() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let made = builder().response_timeout(LONG);
    let made = made.connect(&proxy.url()).await.expect("the server is up");
    let other = client(&server).await;
    for protocol in ["free", "taken"] {
        let held = match protocol {
            "taken" => Some(hold(&other, "k").await),
            _ => None,
        };
        for _ in 0..5 {
            proxy.hold_requests();
            let lock = made.lock("k").lease(LASTING).wait(LONG);
            let call = tokio::spawn(async move { lock.acquire().await.map(drop) });
            tokio::time::sleep(ms(100)).await;
            call.abort();
            assert!(call.await.expect_err("aborted").is_cancelled());
            tokio::time::sleep(ms(100)).await;
            proxy.pass();
            tokio::time::sleep(ms(100)).await;
            assert_soon_queued(&server, "k", 0).await;
            match &held {
                Some(held) => {
                    let owners = server.hgetall(&name("k")).await;
                    assert_eq!(
                        owners.into_keys().collect::<Vec<_>>(),
                        [held.owner().to_string()]
                    );
                }
                None => assert_soon_free(&server, "k").await,
            }
        }
        if let Some(held) = held {
            held.release().await.expect("held");
        }
        assert_nothing_left(&server).await;
    }
}

#[tokio::test]
async fn a_loss_is_pushed_before_and_after_the_first_renewal() {
    let server = RedisServer::start();
    let made = client(&server).await;
    for waits in [ms(0), ms(1800)] {
        // The lock is renewed once, after 1.1 to 1.5 seconds.
        let lock = made.lock("k").lease(ms(4500));
        let guard = lock.acquire().await.expect("free");
        tokio::time::sleep(waits).await;
        assert!(server.del(&name("k")).await);
        assert_lost(&guard, ms(700), LostCause::Removed).await;
        drop(guard);
    }
}

#[tokio::test]
async fn a_loss_is_pushed_after_either_connection_was_replaced() {
    let server = RedisServer::start();
    for kills in [
        &["background"][..],
        &["caller"],
        &["background", "caller"],
        &["caller", "background"],
        &["background", "background"],
    ] {
        let made = client(&server).await;
        let before = hold(&made, "before").await;
        let blocking = made.clone();
        let by_thread = tokio::task::spawn_blocking(move || {
            blocking.lock("thread").lease(LASTING).acquire_blocking()
        });
        let by_thread = by_thread.await.expect("no panic").expect("free");
        for which in kills {
            let (background, caller) = background_and_caller(&server).await;
            let lost = if *which == "background" {
                background
            } else {
                caller
            };
            kill(&server, &lost).await;
        }
        assert!(before.is_valid() && by_thread.is_valid());
        let after = hold(&made, "after").await;
        let (_, caller) = background_and_caller(&server).await;
        let mut watch = server.watch_commands().await;
        cycle(&made, "k").await;
        assert_eq!(
            script_connections(&mut watch).await,
            BTreeSet::from([caller.address]),
            "{kills:?}"
        );
        for guard in [&after, &before, &by_thread] {
            assert!(server.del(&name(guard.key())).await, "{kills:?}");
            assert_lost(guard, PUSHED, LostCause::Removed).await;
        }
        made.shutdown().await.expect("nothing is left");
        drop((made, before, by_thread, after));
        eventually(LONG, "all are closed", async || {
            server.client_count().await == 0
        })
        .await;
        assert_nothing_left(&server).await;
    }
}

/// The redirection of invalidations is set up right before the lock's request.
#[tokio::test]
async fn the_first_lock_after_the_clients_own_connection_was_replaced_is_watched() {
    let server = RedisServer::start();
    let made = client(&server).await;
    for round in 0..3 {
        let (background, caller) = background_and_caller(&server).await;
        cut(&server, &background).await;
        eventually(
            LONG,
            "the new connection receives invalidations",
            async || {
                let all = connections(&server).await;
                let receives = |id: &str| all.iter().any(|listed| listed.redirected_to == id);
                all.iter().any(|listed| {
                    !listed.is_redirected && listed.id != background.id && receives(&listed.id)
                })
            },
        )
        .await;
        tokio::time::sleep(ms(200)).await;
        let mut watch = server.watch_commands().await;
        let guard = hold(&made, "k").await;
        assert_eq!(
            script_connections(&mut watch).await,
            BTreeSet::from([caller.address])
        );
        assert!(server.del(&name("k")).await, "{round}");
        assert_lost(&guard, PUSHED, LostCause::Removed).await;
        drop(guard);
    }
}

/// The caller's connection may be told to report to a background connection that is just being replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalidations_are_redirected_after_both_connections_were_replaced_at_once() {
    let server = RedisServer::start();
    let _made = client(&server).await;
    for _ in 0..20 {
        let (background, caller) = background_and_caller(&server).await;
        for lost in [&background, &caller] {
            cut(&server, lost).await;
        }
        let former = [background.id, caller.id];
        eventually(
            LONG,
            "the next one reports to the next one",
            async || match &*connections(&server).await {
                [one, other]
                    if ![one, other]
                        .iter()
                        .any(|listed| former.contains(&listed.id)) =>
                {
                    one.redirected_to == other.id || other.redirected_to == one.id
                }
                _ => false,
            },
        )
        .await;
    }
}

/// The server of the caller's connection does not reply, and the background connection is replaced twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalidations_are_redirected_after_the_callers_connection_was_silent() {
    let server = RedisServer::start();
    let gate = Gate::in_front_of(&server);
    let _made = connect(&gate.url()).await;
    let (background, silent) = background_and_caller(&server).await;
    gate.hold(CALLER, Way::Requests);
    cut(&server, &background).await;
    let mut former = [background.id, silent.id].map(Some);
    for _ in 0..2 {
        let mut next = None;
        eventually(LONG, "the next one reports to the next one", async || {
            let all = connections(&server).await;
            let is_new = |listed: &&Listed| !former.contains(&Some(listed.id.clone()));
            let new: Vec<_> = all.iter().filter(is_new).collect();
            next = new
                .iter()
                .find_map(|caller| {
                    new.iter()
                        .find(|background| background.id == caller.redirected_to)
                })
                .map(|background| (*background).clone());
            next.is_some()
        })
        .await;
        let next = next.expect("there is one");
        cut(&server, &next).await;
        former[0] = Some(next.id);
    }
}

#[tokio::test]
async fn waiters_are_notified_after_either_connection_was_replaced() {
    let server = RedisServer::start();
    for kills in ["background", "caller"] {
        let waiter = client(&server).await;
        let (background, caller) = background_and_caller(&server).await;
        let lost = if kills == "background" {
            background
        } else {
            caller
        };
        kill(&server, &lost).await;
        let holder = client(&server).await;
        let held = hold(&holder, "k").await;
        let waiting = acquiring(waiter.lock("k").lease(LASTING).wait(LONG));
        assert_soon_queued(&server, "k", 1).await;
        let released = Instant::now();
        held.release().await.expect("held");
        let guard = its_turn(waiting).await;
        assert!(released.elapsed() < ms(2500), "{:?}", released.elapsed());
        guard.release().await.expect("held");
        drop((waiter, holder));
        eventually(LONG, "all are closed", async || {
            server.client_count().await == 0
        })
        .await;
    }
}

/// The indices of the connections in the order in which a gate's first client opens them.
const BACKGROUND: usize = 0;
const CALLER: usize = 1;

/// A runtime that is blocked delays its own requests only, not the notifications of a waiter.
#[tokio::test]
async fn waiters_are_notified_over_the_background_connection() {
    in_time(notified_over_the_background_connection).await;
}

async fn notified_over_the_background_connection() {
    let server = RedisServer::start();
    let gate = Gate::in_front_of(&server);
    let waiter = builder().response_timeout(LONG);
    let waiter = waiter.connect(&gate.url()).await.expect("it is up");
    let holder = client(&server).await;
    for by_thread in [false, true] {
        let held = hold(&holder, "k").await;
        let lock = waiter.lock("k").lease(LASTING).wait(LONG);
        let waiting = if by_thread {
            tokio::task::spawn_blocking(move || lock.acquire_blocking())
        } else {
            acquiring(lock)
        };
        assert_soon_queued(&server, "k", 1).await;
        // The client has to read the reply of its request.
        tokio::time::sleep(ms(100)).await;
        gate.hold(CALLER, Way::Replies);
        held.release().await.expect("held");
        let (guard, took) = timed(its_turn(waiting)).await;
        assert_within(took, ms(900), by_thread);
        gate.pass(CALLER, Way::Replies);
        guard.release().await.expect("held");
    }
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn a_place_in_the_queue_is_kept_when_either_connection_is_replaced() {
    in_time(a_place_is_kept).await;
}

async fn a_place_is_kept() {
    let server = RedisServer::start();
    let waiter = client(&server).await;
    let (background, caller) = background_and_caller(&server).await;
    for lost in [&caller, &background] {
        let holder = client(&server).await;
        let held = hold(&holder, "k").await;
        let waiting = acquiring(waiter.lock("k").lease(LASTING).wait(LONG));
        assert_soon_queued(&server, "k", 1).await;
        let before = wait_queue(&server, "k").await;
        cut(&server, lost).await;
        tokio::time::sleep(ms(700)).await;
        assert_eq!(wait_queue(&server, "k").await, before);
        held.release().await.expect("held");
        let (guard, took) = timed(its_turn(waiting)).await;
        assert_within(took, ms(900), "the waiter");
        assert_eq!([guard.owner().to_string()], before[..]);
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_waiter_whose_connection_is_gone_is_notified_over_the_background_connection() {
    in_time(notified_although_a_connection_is_gone).await;
}

async fn notified_although_a_connection_is_gone() {
    let server = RedisServer::builder()
        .acl_user("locker", "on >secret ~* &* +@all")
        .start();
    let waiter = connect(&server.url_as("locker", "secret")).await;
    let (_, caller) = background_and_caller(&server).await;
    let holder = client(&server).await;
    let held = hold(&holder, "k").await;
    let waiting = acquiring(waiter.lock("k").lease(LASTING).wait(LONG));
    assert_soon_queued(&server, "k", 1).await;
    // Existing connections stay.
    let () = server.command(&["ACL", "SETUSER", "locker", "off"]).await;
    cut(&server, &caller).await;
    tokio::time::sleep(ms(2500)).await;
    assert_soon_queued(&server, "k", 1).await;
    held.release().await.expect("held");
    let (guard, took) = timed(its_turn(waiting)).await;
    assert_within(took, ms(900), "the waiter");
    guard.release().await.expect("held");
    assert_nothing_left(&server).await;
}

/// The call uses the caller's connection first, then the background connection, which also notifies
/// it.
#[test]
fn a_wait_that_blocks_its_own_runtime_is_notified_over_the_background_connection() {
    in_time_blocking(notified_although_a_runtime_blocks);
}

fn notified_although_a_runtime_blocks() {
    let server = RedisServer::start();
    let outside = single();
    let other = outside.block_on(client(&server));
    let held = outside.block_on(hold(&other, "k"));
    let url = server.url();
    let waiting = thread::spawn(move || {
        single().block_on(async {
            let builder = builder().response_timeout(ms(1000));
            let made = builder.connect(&url).await.expect("the server is up");
            let (lock, runtime) = (made.lock("k").lease(LASTING).wait(LONG), Handle::current());
            // Blocks the only thread of the runtime.
            let other = thread::spawn(move || runtime.block_on(lock.acquire()));
            let guard = other.join().expect("no panic").expect("its turn");
            let at = Instant::now();
            guard.release().await.expect("held");
            at
        })
    });
    // The first attempt goes over the caller's connection, which does not reply.
    thread::sleep(ms(2500));
    outside.block_on(assert_soon_queued(&server, "k", 1));
    let released = Instant::now();
    outside.block_on(held.release()).expect("held");
    let at = waiting.join().expect("no panic");
    let took = at - released;
    assert_within(took, ms(900), "the waiter");
    outside.block_on(assert_nothing_left(&server));
}

/// The wait is too short to notice the silent connection.
#[test]
fn a_call_after_a_wait_that_blocked_its_runtime_uses_the_background_connection() {
    let server = RedisServer::start();
    let outside = Runtime::new().expect("a runtime");
    let url = server.url();
    let (give, made) = mpsc::channel();
    let waiting = thread::spawn(move || {
        single().block_on(async {
            let made = connect(&url).await;
            give.send(()).expect("awaited");
            thread::sleep(ms(300));
            let (lock, runtime) = (made.lock("k").lease(LASTING), Handle::current());
            // Blocks the only thread of the runtime.
            let other = thread::spawn(move || {
                let first = runtime.block_on(lock.clone().wait(ms(500)).acquire());
                first.expect_err("other owners have it, and the reply is not read");
                let (second, took) = runtime.block_on(timed(lock.wait(LONG).acquire()));
                (second.expect("its turn"), took)
            });
            other.join().expect("no panic")
        })
    });
    made.recv().expect("it connects");
    // Two others always hold the lock, so a waiter without a notification finds it taken.
    let others = [(); 2].map(|()| {
        let url = server.url();
        outside.spawn(async move {
            let other = connect(&url).await;
            let lock = other.lock("k").lease(LASTING).wait(LONG);
            loop {
                let guard = lock.acquire().await.expect("its turn");
                tokio::time::sleep(ms(20)).await;
                guard.release().await.expect("held");
            }
        })
    });
    let (guard, took) = waiting.join().expect("no panic");
    others.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(took < ms(4000), "{took:?}");
    drop(guard);
    outside.shutdown_background();
}

#[test]
fn a_call_from_a_runtime_that_has_ended_uses_the_background_connection() {
    in_time_blocking(notified_although_the_runtime_has_ended);
}

fn notified_although_the_runtime_has_ended() {
    let server = RedisServer::start();
    let outside = single();
    let other = outside.block_on(client(&server));
    let held = outside.block_on(hold(&other, "k"));
    let ends = single();
    let made = ends.block_on(client(&server));
    let handle = ends.handle().clone();
    ends.shutdown_background();
    let waiting = thread::spawn(move || {
        let _inside = handle.enter();
        let guard = block_on(made.lock("k").lease(LASTING).wait(LONG).acquire());
        (guard.expect("its turn"), Instant::now(), made)
    });
    outside.block_on(assert_soon_queued(&server, "k", 1));
    let released = Instant::now();
    outside.block_on(held.release()).expect("held");
    let (guard, at, _made) = waiting.join().expect("no panic");
    let took = at - released;
    assert_within(took, ms(900), "the waiter");
    outside.block_on(guard.release()).expect("held");
}

#[tokio::test]
async fn a_server_that_is_slow_for_a_moment_costs_no_waiter_its_place() {
    let server = RedisServer::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let holder = client(&server).await;
    let held = hold(&holder, "k").await;
    let first = acquiring(one.lock("k").lease(LASTING).wait(LONG));
    assert_soon_queued(&server, "k", 1).await;
    let second = acquiring(two.lock("k").lease(LASTING).wait(LONG));
    assert_soon_queued(&server, "k", 2).await;
    let before = wait_queue(&server, "k").await;
    let () = server.command(&["CLIENT", "PAUSE", "1400"]).await;
    // The connection is silent for longer than the client trusts it.
    cycle(&one, "other").await;
    tokio::time::sleep(ms(1500)).await;
    assert_eq!(wait_queue(&server, "k").await, before);
    held.release().await.expect("held");
    its_turn(first).await.release().await.expect("held");
    its_turn(second).await.release().await.expect("held");
}

/// The next waiter continues the turn.
#[test]
fn the_next_waiter_does_not_depend_on_the_runtime_of_the_one_before() {
    in_time_blocking(served_although_a_runtime_is_blocked);
}

fn served_although_a_runtime_is_blocked() {
    let server = RedisServer::start();
    let outside = single();
    let other = outside.block_on(client(&server));
    let held = outside.block_on(hold(&other, "k"));
    let (give, made) = mpsc::channel();
    let (stand_still, stop) = mpsc::channel();
    let url = server.url();
    let stuck = thread::spawn(move || {
        single().block_on(async {
            let made = connect(&url).await;
            let waiting = acquiring(made.lock("k").wait(LONG));
            give.send(made).expect("awaited");
            while stop.try_recv().is_err() {
                tokio::time::sleep(ms(10)).await;
            }
            waiting.abort();
            assert!(waiting.await.expect_err("aborted").is_cancelled());
            thread::sleep(ms(4000));
        });
    });
    let made = made.recv().expect("it connects");
    outside.block_on(assert_soon_queued(&server, "k", 1));
    let next = {
        let lock = made.lock("k").lease(LASTING).wait(LONG);
        thread::spawn(move || lock.acquire_blocking())
    };
    thread::sleep(ms(300));
    stand_still.send(()).expect("awaited");
    thread::sleep(ms(500));
    outside.block_on(assert_soon_queued(&server, "k", 1));
    let released = Instant::now();
    outside.block_on(held.release()).expect("held");
    let guard = next.join().expect("no panic").expect("its turn");
    let took = released.elapsed();
    assert_within(took, ms(900), "the next");
    outside.block_on(guard.release()).expect("held");
    stuck.join().expect("no panic");
    outside.block_on(assert_nothing_left(&server));
}

/// For the connection that acquired the lock, the first renewal is a foreign change.
#[tokio::test]
async fn the_first_renewal_costs_one_more_and_no_loss() {
    let server = RedisServer::start();
    let made = client(&server).await;
    let mut watch = server.watch_commands().await;
    // One after another, so that each lock is renewed by itself, after 1.1 to 1.5 seconds.
    let mut guards = Vec::new();
    for n in 0..12 {
        let lock = made.lock(format!("order:{n}")).lease(ms(4500));
        guards.push(lock.acquire().await.expect("free"));
    }
    watch.clear().await;
    let renewals = |command: &ClientCommand| {
        let renewed = command
            .words
            .iter()
            .filter(|word| word.starts_with("lock:{"))
            .count();
        if command.is("EVALSHA") { renewed } else { 0 }
    };
    tokio::time::sleep(ms(2100)).await;
    let seen: usize = watch.seen().await.iter().map(renewals).sum();
    let each = guards.len();
    assert!((each..=each * 2).contains(&seen), "{seen}");
    // No renewal after the first is reported. In the long run there are at most four in each lease.
    tokio::time::sleep(ms(4500)).await;
    let seen: usize = watch.seen().await.iter().map(renewals).sum();
    assert!(seen <= each * (2 + 4), "{seen}");
    for guard in guards {
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn without_the_permission_to_ask_for_an_id_everything_works() {
    let rules = "on >secret ~* &* +@all -client +client|tracking";
    let server = RedisServer::builder().acl_user("locker", rules).start();
    let url = server.url_as("locker", "secret");
    for url in [url.clone(), resp2(&url)] {
        let (one, other) = (connect(&url).await, connect(&url).await);
        let held = one.lock("k").lease(ms(900)).acquire().await.expect("free");
        let waiting = acquiring(other.lock("k").wait(LONG));
        assert_soon_queued(&server, "k", 1).await;
        tokio::time::sleep(ms(1200)).await;
        assert!(held.is_valid(), "renewed");
        held.release().await.expect("held");
        let guard = its_turn(waiting).await;
        guard.release().await.expect("held");
        if !url.contains("resp2") {
            let guard = hold(&one, "k").await;
            assert!(server.del(&name("k")).await);
            assert_lost(&guard, PUSHED, LostCause::Removed).await;
        }
        assert_nothing_left(&server).await;
    }
}

/// The invalidation arrives right behind the reply to the first renewal.
#[tokio::test]
async fn a_loss_right_after_the_first_renewal_is_noticed() {
    let server = RedisServer::start();
    for by_thread in [false, true] {
        let proxy = Proxy::in_front_of(&server);
        let made = connect(&proxy.url()).await;
        let lock = made.lock("k").lease(ms(9000));
        let guard = if by_thread {
            let taken = tokio::task::spawn_blocking(move || lock.acquire_blocking());
            taken.await.expect("no panic").expect("free")
        } else {
            lock.acquire().await.expect("free")
        };
        tokio::time::sleep(ms(1500)).await;
        proxy.hold_replies();
        // The renewal is due after 2.2 to 3 seconds.
        eventually(LONG, "it is renewed", async || {
            server.pttl(&name("k")).await > 8000
        })
        .await;
        assert!(server.del(&name("k")).await);
        tokio::time::sleep(ms(100)).await;
        proxy.pass();
        assert_lost(&guard, ms(1200), LostCause::Removed).await;
        drop(guard);
        assert_soon_free(&server, "k").await;
    }
}

/// For the connection of the renewals, every nested entry is a foreign change.
#[tokio::test]
async fn nested_entries_are_not_taken_for_losses() {
    const TIMES: u64 = 20;
    let server = RedisServer::start();
    let made = client(&server).await;
    let lock = made.lock("k").lease(ms(9000));
    let guard = lock.acquire().await.expect("free");
    // Time for one renewal.
    tokio::time::sleep(ms(3200)).await;
    let mut watch = server.watch_commands().await;
    for _ in 0..TIMES {
        let inner = guard.scope(lock.acquire()).await.expect("enters");
        inner.release().await.expect("held");
    }
    let scripts = watch.count_of("EVALSHA").await;
    // Each change may cost a renewal.
    assert!(scripts <= TIMES * 4 + 3, "{scripts}");
    guard.release().await.expect("held");
}
