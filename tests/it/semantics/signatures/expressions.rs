//! Expressions of options and placeholders. They may lock a mutex, and await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use rlock_core::{LockClient, LockError, current, distributed_lock};

use super::held::{client, run};
use crate::common::LONG;

type Outcome = Result<String, LockError>;

struct Config {
    tenant: String,
    shops: Vec<(u8, u8)>,
    lease: Duration,
    wait: Duration,
    none: Duration,
    watchdog: bool,
    permits: u32,
}

struct Orders(Mutex<Config>);

impl Orders {
    fn new() -> Self {
        Self(Mutex::new(Config {
            tenant: "acme".to_owned(),
            shops: vec![(1, 2), (3, 4)],
            lease: Duration::from_secs(20),
            wait: Duration::from_secs(5),
            none: Duration::ZERO,
            watchdog: true,
            permits: 2,
        }))
    }

    fn config(&self) -> MutexGuard<'_, Config> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the innermost key. The body runs with the mutex unlocked.
    #[allow(clippy::unnecessary_wraps)] // It is the whole body of several functions.
    fn inside(&self) -> Outcome {
        assert!(self.0.try_lock().is_ok(), "an expression keeps its guard");
        Ok(current().expect("inside a lock").key().to_owned())
    }

    #[distributed_lock(
        key = "mutex:options",
        lease = self.config().lease,
        wait = self.config().wait,
        watchdog = self.config().watchdog,
        max_hold = self.config().lease * 2,
        at_least = self.config().none,
        retain = self.config().none
    )]
    async fn options(&self) -> Outcome {
        self.inside()
    }

    #[distributed_lock(key = "mutex:here", lease = self.config().lease, wait = self.config().wait)]
    fn options_here(&self) -> Outcome {
        self.inside()
    }

    #[distributed_lock(key = "mutex:permits", permits = self.config().permits, lease = self.config().lease)]
    async fn permits(&self) -> Outcome {
        self.inside()
    }

    #[distributed_lock(key = "mutex:<self.config().tenant>:1", lease = self.config().lease)]
    async fn key_and_option(&self) -> Outcome {
        self.inside()
    }

    #[distributed_lock(key = "mutex:<self.config().tenant>:2", lease = self.config().lease)]
    fn key_and_option_here(&self) -> Outcome {
        self.inside()
    }

    #[distributed_lock(key = "mutex:<self.config().tenant>:<self.config().lease:?>")]
    async fn placeholders(&self) -> Outcome {
        self.inside()
    }

    #[distributed_lock(key = ["mutex:<self.config().tenant>", "mutex:<self.config().watchdog>"])]
    fn keys_here(&self) -> Outcome {
        self.inside()
    }

    #[distributed_lock(
        key = "mutex:<self.config().tenant>:<self.config().shops[].0>:<self.config().shops[].1>",
        lease = self.config().lease
    )]
    async fn list(&self) -> Outcome {
        self.inside()
    }

    #[distributed_lock(
        key = "mutex:answers",
        lease = self.config().lease,
        if_taken = Ok(self.config().tenant.clone()),
        or_else = { let tenant = self.config().tenant.clone(); move |_| Ok(tenant) }
    )]
    fn answers_here(&self) -> Outcome {
        self.inside()
    }

    #[allow(clippy::manual_async_fn)]
    #[distributed_lock(key = "mutex:<self.config().tenant>:3", lease = self.config().lease)]
    fn future(self: Arc<Self>) -> impl Future<Output = Outcome> {
        async move { self.inside() }
    }
}

#[async_trait]
trait Sells {
    async fn sell(&self) -> Outcome;
}

#[async_trait]
impl Sells for Orders {
    #[distributed_lock(
        key = "mutex:<self.config().tenant>:<self.config().watchdog>",
        wait = self.config().wait,
        lease = self.config().lease
    )]
    async fn sell(&self) -> Outcome {
        self.inside()
    }
}

/// Runs a call in a thread of its own, because it would block the thread of the test.
#[track_caller]
fn assert_returns(key: &str, call: impl FnOnce(Arc<Orders>) -> Outcome + Send + 'static) {
    client();
    let (returned, outcome) = mpsc::channel();
    thread::spawn(move || returned.send(call(Arc::new(Orders::new()))));
    let outcome = outcome.recv_timeout(LONG);
    let outcome = outcome.unwrap_or_else(|_| panic!("the call of `{key}` waits for a mutex"));
    assert_eq!(outcome.expect("free"), key);
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

#[test]
fn options_may_lock_the_same_mutex() {
    assert_returns("mutex:options", |orders| block_on(orders.options()));
    assert_returns("mutex:permits", |orders| block_on(orders.permits()));
    assert_returns("mutex:here", |orders| orders.options_here());
    assert_returns("mutex:answers", |orders| orders.answers_here());
}

#[test]
fn a_placeholder_and_an_option_may_lock_the_same_mutex() {
    assert_returns("mutex:acme:1", |orders| block_on(orders.key_and_option()));
    assert_returns("mutex:acme:2", |orders| orders.key_and_option_here());
    assert_returns("mutex:acme:3", |orders| block_on(orders.future()));
    assert_returns("mutex:acme:true", |orders| block_on(orders.sell()));
}

#[test]
fn placeholders_may_lock_the_same_mutex() {
    assert_returns("mutex:acme:20s", |orders| block_on(orders.placeholders()));
    assert_returns("mutex:true", |orders| orders.keys_here());
}

#[test]
fn a_list_and_other_placeholders_may_lock_the_same_mutex() {
    assert_returns("mutex:acme:3:4", |orders| block_on(orders.list()));
}

/// Returns its argument at the second poll.
async fn late<T>(value: T) -> T {
    tokio::task::yield_now().await;
    value
}

#[distributed_lock(key = "late:<id>", client = late(client()).await)]
async fn late_client(id: u8) -> Outcome {
    Ok(format!("late:{id}"))
}

#[distributed_lock(
    key = ["late:<id:03>", "late:<id>:<ids[]>"],
    client = late(client().clone()).await,
    lease = late(Duration::from_secs(3)).await,
    wait = late(Duration::from_secs(3)).await,
    watchdog = late(true).await,
    max_hold = late(Duration::from_secs(60)).await,
    at_least = late(Duration::ZERO).await,
    retain = late(Duration::ZERO).await,
    or_else = { let id = late(id).await; move |error| panic!("{id}: {error}") }
)]
async fn late_options(id: u8, ids: &[u8]) -> Outcome {
    Ok(format!("late:{id}:{}", ids.len()))
}

#[allow(clippy::manual_async_fn)]
#[distributed_lock(key = "late:<id>", lease = late(Duration::from_secs(3)).await)]
fn late_future(id: u8) -> impl Future<Output = Outcome> + Send {
    async move { Ok(format!("late:{id}")) }
}

struct Late;

#[async_trait]
impl Sells for Late {
    #[distributed_lock(key = "late:<self.id()>", client = late(LockClient::clone(client())).await)]
    async fn sell(&self) -> Outcome {
        Ok("late:4".to_owned())
    }
}

impl Late {
    fn id(&self) -> u8 {
        let Self = self;
        4
    }
}

/// `run` takes futures that are `Send`.
#[tokio::test]
async fn a_future_whose_options_await_is_send() {
    assert_eq!(run(late_client(1)).await.expect("free"), "late:1");
    let outcome = run(late_options(2, &[7, 8])).await;
    assert_eq!(outcome.expect("free"), "late:2:2");
    assert_eq!(run(late_future(3)).await.expect("free"), "late:3");
    assert_eq!(run(Late.sell()).await.expect("free"), "late:4");
}
