//! In every edition, a locked function drops the temporaries of its last expression, its variables and its arguments
//! in the order of the plain function.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use rlock_core::{LockClient, LockError, distributed_lock};

thread_local! {
    static DROPPED: RefCell<Vec<&'static str>> = RefCell::default();
}

/// Records its drop.
struct Probe(&'static str);

impl Probe {
    fn temporary(&self) -> Temporary<'_> {
        Temporary(self)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        DROPPED.with(|dropped| dropped.borrow_mut().push(self.0));
    }
}

/// Borrows a probe until it is dropped, as a `MutexGuard` does.
struct Temporary<'a>(&'a Probe);

impl Temporary<'_> {
    fn value(&self) -> u32 {
        let Self(Probe(name)) = self;
        u32::from(name.starts_with('f'))
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        DROPPED.with(|dropped| dropped.borrow_mut().push("temporary"));
    }
}

/// Defines the same functions with and without the attribute.
macro_rules! functions {
    ($(#[$attribute:meta])*) => {
        use super::*;

        $(#[$attribute])*
        pub(crate) async fn reads(number: Arc<Mutex<u32>>) -> Result<u32, LockError> {
            Ok(*number.lock().unwrap())
        }

        $(#[$attribute])*
        pub(crate) fn reads_here(number: Arc<Mutex<u32>>) -> Result<u32, LockError> {
            Ok(*number.lock().unwrap())
        }

        $(#[$attribute])*
        pub(crate) fn reads_as_a_future(
            number: Arc<Mutex<u32>>,
        ) -> impl std::future::Future<Output = Result<u32, LockError>> {
            async move { Ok(*number.lock().unwrap()) }
        }

        $(#[$attribute])*
        pub(crate) async fn drops(first: Probe, _second: Probe) -> Result<u32, LockError> {
            let _local = Probe("local");
            Ok(first.temporary().value())
        }

        $(#[$attribute])*
        pub(crate) fn drops_here(first: Probe, _second: Probe) -> Result<u32, LockError> {
            let _local = Probe("local");
            match first.temporary().value() {
                length => Ok(length),
            }
        }
    };
}

mod plain {
    functions!();
}

mod locked {
    functions!(#[distributed_lock(key = "temporaries")]);
}

fn probes() -> [Probe; 2] {
    [Probe("first"), Probe("second")]
}

fn dropped() -> Vec<&'static str> {
    DROPPED.with(|dropped| dropped.take())
}

fn block_on<F: std::future::Future + Send>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    LockClient::in_memory().install();
    runtime.unwrap().block_on(future)
}

#[test]
fn a_last_expression_may_borrow_from_an_argument() {
    let number = || Arc::new(Mutex::new(7));
    assert_eq!(block_on(plain::reads(number())).unwrap(), 7);
    assert_eq!(block_on(locked::reads(number())).unwrap(), 7);
    assert_eq!(block_on(plain::reads_as_a_future(number())).unwrap(), 7);
    assert_eq!(block_on(locked::reads_as_a_future(number())).unwrap(), 7);
    assert_eq!(plain::reads_here(number()).unwrap(), 7);
    assert_eq!(locked::reads_here(number()).unwrap(), 7);
}

#[test]
fn a_locked_body_drops_its_values_in_the_order_of_the_plain_function() {
    let [first, second] = probes();
    block_on(plain::drops(first, second)).unwrap();
    let plain = dropped();
    let [first, second] = probes();
    block_on(locked::drops(first, second)).unwrap();
    assert_eq!(dropped(), plain);
    assert_eq!(plain.len(), 4);
}

#[test]
fn a_locked_synchronous_body_drops_its_values_in_the_order_of_the_plain_function() {
    LockClient::in_memory().install();
    let [first, second] = probes();
    plain::drops_here(first, second).unwrap();
    let plain = dropped();
    let [first, second] = probes();
    locked::drops_here(first, second).unwrap();
    assert_eq!(dropped(), plain);
    assert_eq!(plain.len(), 4);
}
