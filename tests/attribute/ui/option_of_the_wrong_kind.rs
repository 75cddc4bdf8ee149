use rlock_core::{LockError, distributed_lock};

#[distributed_lock(
    key = 42,
    lease = 30,
    wait = true,
    watchdog = "false",
    max_hold = -1,
    min_hold = 'x',
    on_lost = cancel,
    client = "redis://localhost",
    on_error = "skip",
    crate = "rlock_core"
)]
async fn all() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = ["night", 42])]
async fn list() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", permits = "3")]
async fn permits_text() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", permits = true)]
async fn permits_bool() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", permits = 3.0)]
async fn permits_float() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", permits = -1)]
async fn permits_negative() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", permits = 3u64)]
async fn permits_suffix() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
