use rlock_core::{LockError, distributed_lock};

async fn count() -> u8 {
    1
}

#[distributed_lock(key = "night", if_taken = Ok(count().await))]
async fn awaited() -> Result<u8, LockError> {
    Ok(1)
}

#[distributed_lock(key = "night", if_taken = async { Ok(1) })]
async fn a_block() -> Result<u8, LockError> {
    Ok(1)
}

#[distributed_lock(key = "night", on_error = async |_| 1)]
async fn a_closure() -> u8 {
    1
}

#[distributed_lock(key = "night", on_error = |_| async move { 1 })]
async fn a_future() -> u8 {
    1
}

#[distributed_lock(key = "night", on_error = { let one = 1; move |_| count().await + one })]
async fn awaited_in_a_closure() -> u8 {
    1
}

// These run before the body, in the function itself.
#[distributed_lock(key = "night", on_error = { let one = count().await; move |_| one }, if_taken = 1)]
async fn awaited_before() -> u8 {
    1
}

#[distributed_lock(key = "night", allow_future_output = true, if_taken = Ok(Box::pin(async { count().await })))]
async fn a_future_as_the_output() -> Result<std::pin::Pin<Box<dyn Future<Output = u8>>>, LockError> {
    Ok(Box::pin(count()))
}

fn main() {}
