use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", wait = "for good")]
async fn words() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", wait = "5")]
async fn no_unit() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", wait = 5)]
async fn number() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", wait = "-1s")]
async fn negative() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", wait = "5 parsecs")]
async fn no_unit_of_time() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", wait = forever)]
async fn without_quotes() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", wait = forever)]
async fn of_a_parameter(forever: std::time::Duration) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
