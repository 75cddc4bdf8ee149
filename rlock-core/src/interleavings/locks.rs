//! Tests of acquires, waits, hand-overs, cancellations and releases.

use std::{sync::Arc, time::Duration};

use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
    thread,
};
use smallvec::smallvec;

use super::{
    in_many_orders, leave, polled,
    world::{World, with_clients},
};
use crate::{
    client::LockClient,
    error::LockError,
    few::Few,
    guard::LockGuard,
    lock::Lock,
    options::Reentry,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Acquires the locks, or gives up after a few polls, chosen by shuttle.
async fn acquire_or_give_up(lock: &Lock) -> Option<Result<Few<LockGuard>, LockError>> {
    let acquiring = lock.acquire_all();
    if thread_rng().gen_bool(0.3) {
        let polls = thread_rng().gen_range(0..4);
        polled(polls, acquiring).await
    } else {
        Some(acquiring.await)
    }
}

/// Acquires the locks, asserts that no other call is inside, and releases them.
async fn call(lock: &Lock, inside: &[Arc<AtomicUsize>]) {
    let Some(guards) = acquire_or_give_up(lock).await else {
        return;
    };
    let guards = guards.expect("its turn comes");
    for room in inside {
        assert_eq!(room.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
    }
    shuttle::future::yield_now().await;
    for room in inside {
        room.fetch_sub(1, Ordering::SeqCst);
    }
    for guard in guards {
        leave(guard).await;
    }
}

/// Calls these locks at the same time. Each one excludes the calls that share a counter with it.
fn all_call(calls: Vec<(Lock, Vec<Arc<AtomicUsize>>)>) {
    let threads: Vec<_> = calls
        .into_iter()
        .map(|(lock, inside)| thread::spawn(move || block_on(call(&lock, &inside))))
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
}

fn lock(client: &LockClient, keys: Few<String>) -> Lock {
    let options = client.core().options.lock;
    let lock = Lock::new(client.handle().clone(), keys, options).wait_forever();
    if thread_rng().gen_bool(0.3) {
        lock.retain(Duration::from_secs(60))
    } else {
        lock
    }
}

#[test]
fn callers_of_one_client_are_inside_one_at_a_time_and_all_have_their_turn() {
    in_many_orders(|| {
        with_clients(1, Reentry::Counted, &["k"], |World { clients, .. }| {
            let inside = Arc::default();
            let call = |_| {
                let lock = lock(&clients[0], smallvec!["k".to_owned()]);
                (lock, vec![Arc::clone(&inside)])
            };
            all_call((0..4).map(call).collect());
        });
    });
}

#[test]
fn callers_of_two_clients_are_inside_one_at_a_time_and_all_have_their_turn() {
    in_many_orders(|| {
        with_clients(2, Reentry::Counted, &["k"], |World { clients, .. }| {
            let inside = Arc::default();
            let call = |n: usize| {
                let lock = lock(&clients[n % 2], smallvec!["k".to_owned()]);
                (lock, vec![Arc::clone(&inside)])
            };
            all_call((0..4).map(call).collect());
        });
    });
}

#[test]
fn callers_who_want_several_locks_have_their_turn_among_others() {
    in_many_orders(|| {
        with_clients(
            2,
            Reentry::Counted,
            &["k:0", "k:1"],
            |World { clients, .. }| {
                let rooms: [Arc<AtomicUsize>; 2] = Default::default();
                let wants = |client: usize, keys: &[usize]| {
                    let names = keys.iter().map(|key| format!("k:{key}")).collect();
                    let inside = keys.iter().map(|key| Arc::clone(&rooms[*key])).collect();
                    (lock(&clients[client], names), inside)
                };
                all_call(vec![
                    wants(0, &[0, 1]),
                    wants(1, &[1, 0]),
                    wants(0, &[1]),
                    wants(1, &[0]),
                ]);
            },
        );
    });
}

/// Acquires and releases the locks, which may be lost meanwhile.
async fn lossy_call(lock: &Lock) {
    let Some(guards) = acquire_or_give_up(lock).await else {
        return;
    };
    for guard in guards.expect("its turn comes") {
        shuttle::future::yield_now().await;
        if thread_rng().gen_bool(0.5) {
            let _ = guard.release().await;
        }
    }
}

#[test]
fn whatever_is_lost_all_have_their_turn_and_nothing_is_left() {
    in_many_orders(|| {
        with_clients(
            2,
            Reentry::Counted,
            &["k:0", "k:1"],
            |World { clients, .. }| {
                let wants = |client: usize, keys: &[usize]| {
                    let names = keys.iter().map(|key| format!("k:{key}")).collect();
                    lock(&clients[client], names)
                };
                let calls = [
                    wants(0, &[0, 1]),
                    wants(1, &[0]),
                    wants(0, &[0]),
                    wants(1, &[1]),
                ];
                let calls = calls.map(|lock| thread::spawn(move || block_on(lossy_call(&lock))));
                for key in ["k:0", "k:1"] {
                    clients[0].revoke(key).expect("the embedded store");
                    for client in clients {
                        block_on(client.core().renewer().check());
                    }
                }
                for call in calls {
                    call.join().expect("no panic");
                }
            },
        );
    });
}
