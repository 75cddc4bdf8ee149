//@editions 2015
//! The oldest edition, which lacks `async`, reserves no `dyn`, and has other paths.

use crate::support::{Error, Runs};

pub struct Order {
    id: u64,
}

//@ key = "order:<order.id>", lease = "3s", wait = "0s", max_hold = "1min"
pub fn pay(order: &Order) -> Result<u64, Error> {
    let async = order.id;
    Ok(async)
}

//@ key = ["order:<ids[]:04>"], on_error = |error| error.to_string()
pub fn pay_all(ids: &[u64]) -> String {
    format!("{} orders", ids.len())
}

pub mod inner {
    use crate::support::Error;

    pub const NIGHT: &str = "night";

    //@ key = "<self::NIGHT>", if_taken = Ok(Box::new(|| 0))
    pub fn boxed() -> Result<Box<dyn Fn() -> u8>, Error> {
        Ok(Box::new(|| 1))
    }
}

pub fn runs(runs: &mut Runs) {
    runs.value("pay", pay(&Order { id: 7 }));
    runs.value("pay_all", pay_all(&[1, 2]));
    runs.value("boxed", inner::boxed().unwrap()());
}
