//! Futures that move between threads, and futures that cannot.

use std::{cell::Cell, rc::Rc};

use rlock_core::{LockError, distributed_lock};

use super::held::{Outcome, assert_free, assert_held, client, run};

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

/// An error that is `Send`, but not `Sync`.
#[expect(dead_code, reason = "its type is what counts")]
struct SendAlone(Cell<u8>);

impl From<LockError> for SendAlone {
    fn from(_: LockError) -> Self {
        Self(Cell::new(1))
    }
}

#[distributed_lock(key = "sync:<name>")]
async fn may_be_shared(name: String) -> Result<usize, SendAlone> {
    tokio::task::yield_now().await;
    Ok(name.len())
}

#[distributed_lock(key = "sync:<name>", or_else = |error: LockError| error.to_string())]
async fn may_be_shared_or_else(name: String) -> String {
    tokio::task::yield_now().await;
    name
}

#[distributed_lock(key = "captured:<id>")]
fn captures_what_it_uses(
    _name: &str,
    _counter: Rc<Cell<u8>>,
    id: u64,
) -> impl Future<Output = Outcome<u64>> + use<> {
    async move { Ok(id) }
}

/// Functions that each call the next one.
macro_rules! nested {
    ($last:ident) => {
        #[distributed_lock(key = "nested")]
        async fn $last() -> Outcome<u32> {
            tokio::task::yield_now().await;
            Ok(rlock_core::current().map_or(0, |hold| hold.count()))
        }
    };
    ($outer:ident $inner:ident $($rest:ident)*) => {
        #[distributed_lock(key = "nested")]
        async fn $outer() -> Outcome<u32> {
            $inner().await
        }

        nested!($inner $($rest)*);
    };
}

nested!(one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen);

#[tokio::test]
async fn fifteen_nested_functions_are_send_within_the_compilers_default_depth() {
    client();
    let entries = tokio::spawn(one()).await.expect("no panic");
    assert_eq!(entries.expect("free"), 15);
}

#[tokio::test]
async fn a_future_captures_only_what_its_body_uses() {
    client();
    let future = captures_what_it_uses(&String::from("short-lived"), Rc::default(), 7);
    assert_eq!(
        tokio::spawn(future).await.expect("no panic").expect("free"),
        7
    );
}

#[tokio::test]
async fn a_future_is_sync_if_its_arguments_are() {
    async fn run_shared<F: Future + Send + Sync>(future: F) -> F::Output {
        client();
        future.await
    }
    let name = || "ada".to_owned();
    let Ok(length) = run_shared(may_be_shared(name())).await else {
        panic!("it is free");
    };
    assert_eq!(length, 3);
    assert_eq!(run_shared(may_be_shared_or_else(name())).await, "ada");
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
