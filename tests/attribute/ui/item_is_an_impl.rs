use rlock_core::{LockError, distributed_lock};

pub struct Order;

#[distributed_lock(key = "order", lease = "30s")]
impl Order {
    pub async fn pay(&self) -> Result<(), LockError> {
        Ok(())
    }
}

#[distributed_lock(key = "order")]
pub trait Payment {
    fn pay(&self) -> Result<(), LockError>;
}

fn main() {
    // The methods are there all the same.
    let _ = Order.pay();
}
