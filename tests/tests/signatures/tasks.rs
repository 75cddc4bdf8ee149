//! Futures that move between threads, and futures that cannot.

use std::{cell::Cell, rc::Rc};

use rlock_core::distributed_lock;

use crate::held::{Outcome, assert_free, assert_held, client, run};

#[distributed_lock(key = "spawned:<name>")]
async fn spawned(name: String) -> Outcome<String> {
    let key = format!("spawned:{name}");
    assert_held(&key).await;
    tokio::task::yield_now().await;
    assert_held(&key).await;
    Ok(name)
}

#[distributed_lock(key = "local")]
async fn stays_on_its_thread(counter: Rc<Cell<u8>>) -> Outcome<u8> {
    assert_held("local").await;
    counter.set(counter.get() + 1);
    tokio::task::yield_now().await;
    Ok(counter.get())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_that_is_send_can_be_spawned() {
    let tasks = ["ada", "bob", "ada"].map(|name| tokio::spawn(run(spawned(name.to_owned()))));
    for task in tasks {
        task.await.expect("no panic").expect("granted");
    }
    assert_free("spawned:ada").await;
}

#[tokio::test]
async fn a_future_that_is_not_send_runs_on_a_local_set() {
    client();
    let local = tokio::task::LocalSet::new();
    let counter = Rc::new(Cell::new(0));
    let task = local.spawn_local(stays_on_its_thread(Rc::clone(&counter)));
    local.await;
    assert_eq!(task.await.expect("no panic").expect("free"), 1);
    assert_eq!(counter.get(), 1);
}
