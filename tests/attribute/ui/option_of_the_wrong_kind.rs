use rlock_core::{LockError, distributed_lock};

#[distributed_lock(
    key = 42,
    lease = 30,
    wait = true,
    watchdog = "false",
    max_hold = -1,
    at_least = 'x',
    on_lost = cancel,
    client = "redis://localhost",
    or_else = "skip",
    crate = "rlock_core"
)]
async fn all() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = ["night", 42])]
async fn list() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
