use rlock_core::{LockError, distributed_lock, fencing::Fence};

async fn save(_fence: Fence) {}

#[distributed_lock(key = "order:<id>")]
async fn pay(id: u64) -> Result<(), LockError> {
    if lock.is_valid() {
        save(lock.fence()).await;
    }
    Ok(())
}

fn main() {
    drop(pay(1));
}
