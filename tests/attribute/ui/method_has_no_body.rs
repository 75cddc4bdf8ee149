use rlock_core::{LockError, distributed_lock};

trait Payment {
    #[distributed_lock(key = "payment")]
    async fn pay(&self) -> Result<(), LockError>;

    #[distributed_lock(key = "payment")]
    fn pay_here(&self) -> Result<(), LockError>;
}

fn main() {}
