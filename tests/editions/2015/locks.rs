//! The attribute in a crate of edition 2015, which lacks `async`, reserves no `dyn`, and has other paths.
#![deny(warnings)]

extern crate rlock_core;

use rlock_core::{LockClient, LockError, current, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:<order.id>", lease = "3s", wait = "0s", max_hold = "1min")]
fn pay(order: &Order) -> Result<String, LockError> {
    let async = current().expect("inside of a lock");
    Ok(async.key().to_owned())
}

#[distributed_lock(key = ["order:<ids[]:04>"], or_else = |error| error.to_string(), guard = hold)]
fn pay_all(ids: &[u64]) -> String {
    format!("{} of {}", hold.key(), ids.len())
}

mod inner {
    use rlock_core::{LockError, distributed_lock};

    const NIGHT: &str = "night";

    #[distributed_lock(key = "<self::NIGHT>", if_taken = Ok(Box::new(|| 0)))]
    pub fn boxed() -> Result<Box<dyn Fn() -> u8>, LockError> {
        Ok(Box::new(|| 1))
    }
}

#[test]
fn a_crate_of_edition_2015_locks_like_others() {
    LockClient::in_memory().install();
    assert_eq!(pay(&Order { id: 7 }).expect("free"), "order:7");
    assert_eq!(pay_all(&[1, 2]), "order:0002 of 2");
    assert_eq!(inner::boxed().expect("free")(), 1);
}
