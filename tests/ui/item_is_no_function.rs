use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order")]
pub struct Order;

#[distributed_lock(key = "order")]
impl Order {
    async fn pay(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[distributed_lock(key = "order")]
const LIMIT: u8 = 3;

#[distributed_lock(key = "order")]
mod orders {}

trait Payment {
    #[distributed_lock(key = "payment")]
    async fn without_a_body(&self) -> Result<(), LockError>;
}

fn main() {
    let _ = (Order.pay(), LIMIT);
}
