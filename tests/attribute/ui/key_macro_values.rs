use std::collections::HashSet;

use rlock_core::key;

struct Order {
    id: u64,
}

fn main() {
    let order = Order { id: 42 };
    let ids = vec![1, 2];
    let first = ids.first();
    let set = HashSet::from([1]);
    let _ = key!("order:<ordre.id>");
    let _ = key!("order:<order.idd>");
    let _ = key!("order:<order>");
    let _ = key!("order:<ids>");
    let _ = key!("order:<first>");
    let by_reference = &first;
    let _ = key!("order:<by_reference>");
    let _ = key!("order:<set:?>");
    let _ = key!("order:<order.id[]>");
}
