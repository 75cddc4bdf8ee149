//! Expressions of options and placeholders may lock a mutex. `tests/attribute/shapes/accepted/awaits.rs` has some
//! that await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rlock_core::{current, distributed_lock};

use super::held::{self, block_on, client};
use crate::common::LONG;

type Outcome = held::Outcome<String>;

struct Config {
    shops: Vec<(u8, u8)>,
    lease: Duration,
    permits: u32,
}

struct Orders(Mutex<Config>);

impl Orders {
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
        key = "mutex:<self.config().permits>:<self.config().shops[].0>:<self.config().shops[].1>",
        permits = self.config().permits,
        lease = self.config().lease,
        wait = self.config().lease
    )]
    async fn list(&self) -> Outcome {
        self.inside()
    }

    #[distributed_lock(
        key = "mutex:<self.config().lease:?>",
        lease = self.config().lease,
        if_taken = Ok(self.config().permits.to_string()),
        on_error = { let permits = self.config().permits; move |_| Ok(permits.to_string()) }
    )]
    fn here(&self) -> Outcome {
        self.inside()
    }
}

/// Runs a call in a thread of its own, because it would block the thread of the test.
#[track_caller]
fn assert_returns(key: &str, call: impl FnOnce(Arc<Orders>) -> Outcome + Send + 'static) {
    client();
    let (returned, outcome) = mpsc::channel();
    let orders = Arc::new(Orders(Mutex::new(Config {
        shops: vec![(3, 4)],
        lease: Duration::from_secs(30),
        permits: 2,
    })));
    thread::spawn(move || returned.send(call(orders)));
    let outcome = outcome.recv_timeout(LONG);
    let outcome = outcome.unwrap_or_else(|_| panic!("the call of `{key}` waits for a mutex"));
    assert_eq!(outcome.expect("free"), key);
}

#[test]
fn all_expressions_of_an_attribute_may_lock_the_same_mutex() {
    assert_returns("mutex:2:3:4", |orders| block_on(orders.list()));
    assert_returns("mutex:30s", |orders| orders.here());
}
