use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "call", take = 3)]
async fn without_permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "call", permits = 8, take = 0)]
async fn none() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "call", permits = 8, take = 9)]
async fn more_than_there_are() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "call", take = 4_294_967_296, permits = 8)]
fn far_too_many() -> Result<(), LockError> {
    Ok(())
}

// How many permits there are is only known when the function is called.
#[distributed_lock(key = "call", permits = most, take = 9)]
async fn of_an_expression(most: u32) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "call", take = most, shared)]
fn without_permits_and_shared(most: u32) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
