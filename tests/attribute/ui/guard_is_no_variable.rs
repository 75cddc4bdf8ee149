use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", guard = "lock")]
async fn literal() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", guard = _)]
async fn without_a_name() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "night", guard = self.lock)]
async fn field() -> Result<(), LockError> {
    Ok(())
}

struct Night;

impl Night {
    #[distributed_lock(key = "night", guard = self)]
    fn receiver(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[distributed_lock(key = "order:<lock>", guard = lock)]
async fn parameter(lock: u64) -> Result<u64, LockError> {
    Ok(lock)
}

#[distributed_lock(key = "order:<left>", guard = right)]
fn part_of_a_pattern((left, right): (u64, u64)) -> Result<u64, LockError> {
    Ok(left + right)
}

#[distributed_lock(key = "order:<lock>", guard = lock)]
async fn placeholder(id: u64) -> Result<u64, LockError> {
    Ok(id + lock.token().as_u64())
}

#[distributed_lock(key = "night", hold = lock)]
async fn another_name() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
