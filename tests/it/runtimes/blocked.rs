//! Services that block their runtime delay no other client, and are still notified.
//!
//! They never replace a silent connection, so a call that used the connection of a blocked runtime would never return.

use std::{sync::mpsc, thread};

use pollster::block_on;
use rlock_core::{LockClient, LostCause};
use rlock_testkit::RedisServer;
use tokio::{runtime::Handle, sync::oneshot};

use super::single;
use crate::{
    common::{
        LASTING, LONG, assert_lost, assert_nothing_left, assert_soon_queued, builder, client,
        connect, hold, name,
    },
    leases::clock::HOUR,
};

/// Makes a client on a runtime with one thread, which ends when the sender is dropped.
fn made_elsewhere(server: &RedisServer) -> (LockClient, Handle, oneshot::Sender<()>) {
    let (url, (give, made)) = (server.url(), mpsc::channel());
    let (keep, ended) = oneshot::channel();
    thread::spawn(move || {
        single().block_on(async {
            let builder = builder().response_timeout(HOUR);
            let made = builder.connect(&url).await.expect("it is up");
            give.send((made, Handle::current())).expect("awaited");
            let _ = ended.await;
        });
    });
    let (made, runtime) = made.recv().expect("it connects");
    (made, runtime, keep)
}

/// Blocks the only thread of the runtime until the sender is dropped.
fn block(runtime: &Handle) -> mpsc::Sender<()> {
    let (go_on, is_over) = mpsc::channel();
    let (tell, blocks) = mpsc::channel();
    runtime.spawn(async move {
        tell.send(()).expect("awaited");
        let _ = is_over.recv();
    });
    blocks.recv().expect("it runs");
    go_on
}

#[test]
fn a_blocked_runtime_delays_no_other() {
    let server = RedisServer::start();
    let outside = single();
    let (made, runtime, _keep) = made_elsewhere(&server);
    let lock = made.lock("held").lease(HOUR);
    let guard = runtime.spawn(async move { lock.acquire().await });
    let guard = outside.block_on(guard).expect("no panic").expect("free");
    let go_on = block(&runtime);

    let lock = made.lock("k").wait(LONG);
    let cycle = async || {
        let guard = lock.acquire().await.expect("free");
        guard.release().await.expect("held");
    };
    lock.run_blocking(|| ()).expect("free");
    block_on(cycle());
    outside.block_on(cycle());
    let (finished, done) = mpsc::channel();
    let blocking = lock.clone();
    runtime.spawn_blocking(move || finished.send(blocking.run_blocking(|| ())));
    done.recv().expect("no panic").expect("free");
    let held = outside.block_on(lock.acquire()).expect("free");
    thread::scope(|threads| {
        let next = threads.spawn(|| lock.acquire_blocking().map(drop));
        outside.block_on(held.release()).expect("held");
        next.join().expect("no panic").expect("its turn");
    });

    outside.block_on(async {
        assert!(server.del(&name("held")).await);
        assert_lost(&guard, LONG, LostCause::Removed).await;
        drop(guard);
        assert_nothing_left(&server).await;
    });
    drop(go_on);
}

/// The call first uses the connection of its own runtime, and turns to the background connection when that one stays silent.
#[test]
fn a_wait_that_blocks_its_own_runtime_is_notified_over_the_background_connection() {
    let server = RedisServer::start();
    let outside = single();
    let other = outside.block_on(client(&server));
    let held = outside.block_on(hold(&other, "k"));
    let url = server.url();
    let waiting = thread::spawn(move || {
        single().block_on(async {
            let made = connect(&url).await;
            let (lock, runtime) = (made.lock("k").lease(LASTING).wait(LONG), Handle::current());
            let call = thread::spawn(move || runtime.block_on(lock.acquire()));
            // Blocks the only thread of the runtime.
            let guard = call.join().expect("no panic").expect("its turn");
            guard.release().await.expect("held");
        });
    });
    outside.block_on(assert_soon_queued(&server, "k", 1));
    outside.block_on(held.release()).expect("held");
    waiting.join().expect("no panic");
    outside.block_on(assert_nothing_left(&server));
}
