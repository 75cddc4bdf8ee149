use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "config", shared = true)]
async fn a_bool() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "config", shared = false, wait = "0s")]
async fn not_shared() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "config", shared: true)]
async fn a_colon() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "config", shared(true))]
async fn called() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "config", shared "tenant:<tenant>")]
async fn a_key(tenant: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "config", shared wait = "0s")]
fn no_comma() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "config", shared, shared)]
async fn twice() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
