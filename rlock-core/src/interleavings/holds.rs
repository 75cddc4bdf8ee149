//! Tests of one hold with nested entries, renewals, losses and releases at the same time.

use std::{sync::Arc, time::Duration};

use shuttle::{future::block_on, sync::Mutex, thread};

use super::{
    in_many_orders, leave,
    world::{World, with_clients},
};
use crate::{
    client::LockClient,
    engine::call_chain::Scope,
    error::{LockError, LostCause},
    guard::LockGuard,
    options::Reentry,
    sync::atomic::{AtomicUsize, Ordering},
};

fn hold(client: &LockClient) -> LockGuard {
    block_on(client.lock("k").acquire()).expect("free")
}

/// Starts a thread that enters the hold of this guard, or acquires the lock if the hold has ended.
fn enters(client: &LockClient, outer: &LockGuard) -> thread::JoinHandle<LockGuard> {
    let (client, entry) = (client.clone(), outer.entry().clone());
    thread::spawn(move || {
        let scope = Scope::current().inside(entry);
        let lock = client.lock("k").wait_forever();
        block_on(scope.around(lock.acquire())).expect("it can be entered, or taken")
    })
}

/// Starts a thread that enters as [`enters`], and leaves again.
fn nested(client: &LockClient, outer: &LockGuard) -> thread::JoinHandle<()> {
    let entering = enters(client, outer);
    thread::spawn(move || block_on(leave(entering.join().expect("no panic"))))
}

/// Starts a thread that waits for the lock and releases it.
fn takes_its_turn(client: &LockClient) -> thread::JoinHandle<()> {
    let client = client.clone();
    thread::spawn(move || {
        let lock = client.lock("k").wait_forever();
        let guard = block_on(lock.acquire()).expect("its turn comes");
        block_on(leave(guard));
    })
}

/// The hold that is inside: its token, and the number of its guards.
type Inside = Arc<Mutex<Option<(u64, usize)>>>;

/// Asserts that only guards of the same hold are inside, then releases this one.
fn is_inside(guard: LockGuard, inside: &Inside) {
    {
        let mut inside = inside.lock().expect("no panic");
        let (token, count) = inside.get_or_insert((guard.fencing_token(), 0));
        assert_eq!(*token, guard.fencing_token(), "two holds at once");
        *count += 1;
    }
    thread::yield_now();
    {
        let mut inside = inside.lock().expect("no panic");
        let (_, count) = inside.as_mut().expect("this one is inside");
        *count -= 1;
        if *count == 0 {
            *inside = None;
        }
    }
    block_on(leave(guard));
}

fn calls_of_a_hold_beside_the_next(reentry: Reentry) {
    with_clients(1, reentry, &["k"], |World { clients, .. }| {
        let inside = Inside::default();
        let client = &clients[0];
        let outer = hold(client);
        let entering = enters(client, &outer);
        let next = {
            let (client, inside) = (client.clone(), Arc::clone(&inside));
            thread::spawn(move || {
                let lock = client.lock("k").wait_forever();
                is_inside(block_on(lock.acquire()).expect("its turn comes"), &inside);
            })
        };
        let entered = {
            let inside = Arc::clone(&inside);
            thread::spawn(move || is_inside(entering.join().expect("no panic"), &inside))
        };
        is_inside(outer, &inside);
        for thread in [next, entered] {
            thread.join().expect("no panic");
        }
    });
}

#[test]
fn a_call_of_an_ended_hold_is_not_inside_of_the_next() {
    in_many_orders(|| calls_of_a_hold_beside_the_next(Reentry::Counted));
}

#[test]
fn a_local_call_of_an_ended_hold_is_not_inside_of_the_next() {
    in_many_orders(|| calls_of_a_hold_beside_the_next(Reentry::Local));
}

/// Runs a test of one client's lock in many orders.
fn in_many_orders_of_one_client(test: fn(&World, &LockClient)) {
    in_many_orders(move || {
        with_clients(1, Reentry::Counted, &["k"], |world| {
            test(world, &world.clients[0]);
        });
    });
}

fn store_counts(client: &LockClient) -> u32 {
    let info = block_on(client.inspect("k")).expect("an answer");
    info.map_or(0, |info| info.count)
}

fn entering_while_the_outer_entry_leaves(reentry: Reentry) {
    with_clients(1, reentry, &["k"], |World { clients, .. }| {
        let outer = hold(&clients[0]);
        let threads = [nested(&clients[0], &outer), nested(&clients[0], &outer)];
        block_on(leave(outer));
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

#[test]
fn entering_while_the_outer_entry_leaves_neither_leaks_nor_loses_the_hold() {
    in_many_orders(|| entering_while_the_outer_entry_leaves(Reentry::Counted));
}

#[test]
fn entering_locally_while_the_outer_entry_leaves_neither_leaks_nor_loses_the_hold() {
    in_many_orders(|| entering_while_the_outer_entry_leaves(Reentry::Local));
}

#[test]
fn whoever_enters_while_the_outer_entry_leaves_is_looked_after() {
    in_many_orders_of_one_client(|world, client| {
        let outer = hold(client);
        let entering = enters(client, &outer);
        block_on(leave(outer));
        let guard = entering.join().expect("no panic");
        world.settled();
        let hold = &guard.entry().ownership;
        assert!(hold.is_held() && hold.deadline().is_some());
        assert_eq!(store_counts(client), 1);
        block_on(leave(guard));
    });
}

#[test]
fn the_store_s_count_is_right_when_all_nested_changes_are_done() {
    in_many_orders_of_one_client(|world, client| {
        let outer = hold(client);
        let threads: Vec<_> = (0..3).map(|_| nested(client, &outer)).collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        world.settled();
        assert_eq!((store_counts(client), outer.count()), (1, 1));
        block_on(leave(outer));
    });
}

#[test]
fn a_hold_that_is_given_back_beside_its_renewal_is_not_renewed_again() {
    in_many_orders_of_one_client(|world, client| {
        let outer = hold(client);
        let before = Arc::clone(&outer.entry().ownership);
        // The renewal is due, and the lease is still valid.
        world.jump(Duration::from_secs(12));
        let renewing = {
            let client = client.clone();
            thread::spawn(move || block_on(client.core().renewer().check()))
        };
        let entering = nested(client, &outer);
        block_on(leave(outer));
        let now = world.now();
        let left = before.begin_renewal(Duration::from_secs(30), now).is_none();
        // Another thread may have entered meanwhile.
        assert!(left || before.is_held() || before.count(before.token()) == 0);
        entering.join().expect("no panic");
        renewing.join().expect("no panic");
        assert!(before.begin_renewal(Duration::from_secs(30), now).is_none());
        world.jump(Duration::from_secs(12));
        block_on(client.core().renewer().check());
        assert!(!before.is_held() && before.deadline().is_none());
    });
}

#[test]
fn a_loss_beside_a_release_is_news_once_at_most_and_lets_the_next_in() {
    in_many_orders_of_one_client(|world, client| {
        let guard = hold(client);
        let told = Arc::new(AtomicUsize::new(0));
        let lose = |cause| {
            let (hold, told) = (Arc::clone(&guard.entry().ownership), Arc::clone(&told));
            let (client, now) = (client.clone(), world.now());
            thread::spawn(move || {
                told.fetch_add(usize::from(hold.lose(cause)), Ordering::SeqCst);
                assert!(
                    hold.begin_renewal(Duration::from_secs(30), now).is_none(),
                    "lost, or given back"
                );
                client.core().watchdog.forget(&hold);
            })
        };
        let losing = [lose(LostCause::Expired), lose(LostCause::Closed)];
        let next = {
            let client = client.clone();
            // This call may get the lost ownership.
            thread::spawn(move || drop(block_on(client.lock("k").wait_forever().acquire())))
        };
        let hold = Arc::clone(&guard.entry().ownership);
        let released = block_on(guard.release());
        for thread in losing.into_iter().chain([next]) {
            thread.join().expect("no panic");
        }
        let told = told.load(Ordering::SeqCst);
        assert!(told <= 1, "told {told} times");
        assert!(told == 0 || hold.lost().is_some());
        match released {
            Ok(()) => {}
            Err(LockError::Lost { cause, .. }) => assert_eq!(hold.lost(), Some(cause)),
            Err(error) => panic!("{error}"),
        }
    });
}

#[test]
fn whoever_waits_behind_a_lost_hold_has_the_lock_before_that_is_given_back() {
    in_many_orders_of_one_client(|world, client| {
        let guard = hold(client);
        let next = takes_its_turn(client);
        world.jump(Duration::from_secs(31));
        block_on(client.core().renewer().check());
        next.join().expect("no panic");
        assert_eq!(guard.entry().ownership.lost(), Some(LostCause::Expired));
        let released = block_on(guard.release());
        assert!(matches!(released, Err(LockError::Lost { .. })));
    });
}
