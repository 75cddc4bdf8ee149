use rlock_core::{LockError, distributed_lock};

struct Shelf;

#[distributed_lock(key = "order:<ID>")]
async fn parameter_in_capitals(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

impl Shelf {
    #[distributed_lock(key = "shelf:<Self::name()>")]
    async fn function(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
