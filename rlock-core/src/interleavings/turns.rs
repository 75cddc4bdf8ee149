//! Tests of the local queues.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
};

use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
    sync::Mutex,
    thread,
};

use super::in_many_orders;
use crate::{
    clock::ClientClock,
    engine::ownership::{LocalQueues, Turn},
    key::Key,
    options::LockOptions,
    sync::atomic::{AtomicUsize, Ordering},
};

type Waiting = Pin<Box<dyn Future<Output = Turn> + Send>>;

fn key() -> Key {
    Key::parse("k").expect("valid")
}

async fn its_turn(queues: &Arc<LocalQueues>) -> Turn {
    match queues.enqueue(&key(), &LockOptions::default()) {
        Ok(turn) => turn,
        Err(waiting) => waiting.turn().await,
    }
}

/// Joins the queue.
fn stand(queues: &Arc<LocalQueues>) -> Waiting {
    let queues = Arc::clone(queues);
    let mut waiting: Waiting = Box::pin(async move { its_turn(&queues).await });
    let polled = waiting
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "somebody has the turn");
    waiting
}

/// Returns `true` half of the time.
fn coin() -> bool {
    thread_rng().gen_bool(0.5)
}

#[test]
fn turns_are_given_to_one_at_a_time_in_the_order_of_standing_and_none_is_lost() {
    in_many_orders(|| {
        let queues = Arc::new(LocalQueues::new(16, ClientClock::default()));
        let turn = queues.try_turn(&key()).expect("free");
        let served = Arc::new(Mutex::new(Vec::new()));
        let inside = Arc::new(AtomicUsize::new(0));
        let mut stays = Vec::new();
        let mut threads = Vec::new();
        for place in 0..4 {
            let waiting = stand(&queues);
            let stayed = coin();
            if stayed {
                stays.push(place);
            }
            let (served, inside) = (Arc::clone(&served), Arc::clone(&inside));
            threads.push(thread::spawn(move || {
                if !stayed {
                    drop(waiting);
                    return;
                }
                let turn = block_on(waiting);
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                served.lock().expect("no panic").push(place);
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(turn);
            }));
        }
        let late = {
            let (queues, served) = (Arc::clone(&queues), Arc::clone(&served));
            thread::spawn(move || {
                let _turn = block_on(its_turn(&queues));
                served.lock().expect("no panic").push(99);
            })
        };
        drop(turn);
        for thread in threads.into_iter().chain([late]) {
            thread.join().expect("no panic");
        }
        stays.push(99);
        assert_eq!(*served.lock().expect("no panic"), stays);
        assert!(queues.is_empty(), "nothing is left of the line");
    });
}

#[test]
fn whoever_comes_while_the_last_one_leaves_has_the_turn() {
    in_many_orders(|| {
        let queues = Arc::new(LocalQueues::new(16, ClientClock::default()));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let queues = Arc::clone(&queues);
                thread::spawn(move || {
                    for _ in 0..2 {
                        if coin() {
                            drop(queues.try_turn(&key()));
                        } else {
                            drop(block_on(its_turn(&queues)));
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert!(queues.is_empty(), "nothing is left of the line");
    });
}
