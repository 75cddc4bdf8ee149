use rlock_core::{LockError, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:{id}")]
async fn pay(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = ["shop:1", "order:{order.id}"])]
fn ship(order: &Order) -> Result<u64, LockError> {
    Ok(order.id)
}

fn main() {}
