use rlock_core::distributed_lock;

struct OrderError;

type Answer<T> = Result<T, OrderError>;

#[distributed_lock(key = "night")]
async fn named() -> Result<(), OrderError> {
    Err(OrderError)?;
    Ok(())
}

#[distributed_lock(key = "night")]
async fn alias() -> Answer<u8> {
    Ok(1)
}

#[distributed_lock(key = "night")]
fn synchronous() -> Result<(), OrderError> {
    Ok(())
}

fn main() {}
