use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<oder>", lease = "5ms", waitt = "5s", watchdog = 1)]
const fn pay(order: u64) -> Result<u64, LockError> {
    Ok(order)
}

fn main() {
    // The function is there all the same.
    let _: Result<u64, LockError> = pay(42);
}
