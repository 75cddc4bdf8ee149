//! Locks that are taken, waited for, handed over, given up and given back.

use std::sync::Arc;

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
    few::Few,
    lock::Lock,
    options::Reentry,
    sync::atomic::{AtomicUsize, Ordering},
};

/// What one of several callers does with its locks, chosen by shuttle.
async fn call(lock: &Lock, inside: &[Arc<AtomicUsize>]) {
    let acquiring = lock.acquire_all();
    let guards = if thread_rng().gen_bool(0.3) {
        let polls = thread_rng().gen_range(0..4);
        match polled(polls, acquiring).await {
            None => return,
            Some(guards) => guards,
        }
    } else {
        acquiring.await
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

/// Has these locks, each with those who may not be inside beside it, called at the same time.
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
    Lock::new(client.clone(), keys).wait_forever()
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
