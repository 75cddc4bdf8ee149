use rlock_core::{LockError, distributed_lock};

#[derive(Clone, Copy)]
struct OrderId(u64);

#[distributed_lock(key = "order:<id:?>")]
async fn debug(id: OrderId) -> Result<u64, LockError> {
    Ok(id.0)
}

fn main() {}
