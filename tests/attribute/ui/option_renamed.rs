use rlock_core::distributed_lock;

#[distributed_lock(key = "night", at_least = "10s", or_else = |_| 0)]
async fn once() -> u32 {
    1
}

#[distributed_lock(key = "worker", unlocked_output = true, or_else = |_| None)]
fn worker() -> Option<std::future::Ready<()>> {
    None
}

// The value is checked as that of the new name.
#[distributed_lock(key = "night", at_least = "2days", min_hold = "1m")]
async fn twice() -> Result<(), rlock_core::LockError> {
    Ok(())
}

fn main() {}
