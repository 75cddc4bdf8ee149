use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", watchdog)]
async fn bare() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key("night"))]
async fn called() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", lease =)]
async fn unfinished() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night" lease = "30s")]
async fn no_comma() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", = "30s")]
async fn no_name() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", lease => "5s")]
async fn an_arrow() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key: "night", watchdog: false)]
async fn a_colon() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", client == locks())]
async fn two_signs() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
