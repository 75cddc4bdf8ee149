#![no_std]
#![deny(warnings)]
//! A crate without a path to `std`.

extern crate alloc;
// `main` needs `std` to start.
extern crate std as platform;

use alloc::{boxed::Box, format, string::String};
use core::{future::Future, pin::Pin};

use rlock_core::{LockClient, LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", lease = "3s", wait = "0s")]
async fn pay(id: u64) -> Result<String, LockError> {
    Ok(format!("{id}"))
}

#[distributed_lock(key = "order:<id:04>", or_else = |error| format!("{error}"))]
fn pay_here(id: u64) -> String {
    format!("{id}")
}

#[distributed_lock(key = "order:<id>", if_taken = 0, or_else = |_| 1)]
fn boxed(id: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async { id })
}

fn main() {
    LockClient::in_memory().install();
    assert_eq!(pay_here(2), "2");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(
        runtime.block_on(runtime.spawn(pay(3))).unwrap().unwrap(),
        "3"
    );
    assert_eq!(runtime.block_on(boxed(4)), 4);
}
