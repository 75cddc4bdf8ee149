use rlock_core::{LockError, distributed_lock};

#[derive(Clone, Copy)]
struct OrderId(u64);

struct Order {
    id: OrderId,
}

#[distributed_lock(key = "order:<id>")]
async fn argument(id: OrderId) -> Result<u64, LockError> {
    Ok(id.0)
}

#[distributed_lock(key = "order:<order.id>")]
async fn field(order: Order) -> Result<u64, LockError> {
    Ok(order.id.0)
}

#[distributed_lock(key = "order:<id>")]
fn synchronous(id: OrderId) -> Result<u64, LockError> {
    Ok(id.0)
}

#[distributed_lock(key = "order:<order.number>")]
async fn no_such_field(order: Order) -> Result<u64, LockError> {
    Ok(order.id.0)
}

type Maybe = Option<u64>;

#[distributed_lock(key = "order:<id>")]
async fn optional_by_another_name(id: Maybe) -> Result<u64, LockError> {
    Ok(id.unwrap_or_default())
}

#[distributed_lock(key = "order:<id>")]
async fn generic<T: Send>(id: T) -> Result<T, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<ids[].0>")]
async fn element(ids: &[(OrderId, u8)]) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
