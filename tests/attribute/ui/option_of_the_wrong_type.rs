use rlock_core::{LockError, distributed_lock};

struct NoClient;

#[distributed_lock(key = "night", lease = 30u64 * 1000)]
async fn lease() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", client = NoClient)]
async fn client() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", client = &std::sync::Arc::new(NoClient))]
async fn client_in_layers() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", client = locks)]
fn client_that_may_be_none(locks: Option<rlock_core::LockClient>) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", watchdog = 1 + 1)]
async fn watchdog() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", permits = 3u64 * 2)]
async fn permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", on_error = |error: LockError| error.to_string())]
async fn on_error() -> u32 {
    42
}

fn main() {}
