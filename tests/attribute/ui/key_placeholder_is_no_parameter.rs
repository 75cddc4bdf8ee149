use rlock_core::{LockError, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:<oder.id>:<number>")]
async fn two(order: &Order, amount: u32) -> Result<u64, LockError> {
    Ok(order.id + u64::from(amount))
}

#[distributed_lock(key = "tenant:<self.tenant>")]
async fn no_receiver(tenant: u64) -> Result<u64, LockError> {
    Ok(tenant)
}

#[distributed_lock(key = ["night:<id>"])]
async fn no_parameters() -> Result<(), LockError> {
    Ok(())
}

impl Order {
    #[distributed_lock(key = "order:<id>")]
    async fn pay(&self) -> Result<u64, LockError> {
        Ok(self.id)
    }
}

fn main() {}
