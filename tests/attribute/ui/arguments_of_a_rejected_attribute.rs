use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", lease = "1ms")]
async fn pay(id: u64) -> Result<(), LockError> {
    Ok(())
}

struct Shop;

impl Shop {
    #[distributed_lock(key = "order:<id:<day>")]
    fn ship(&self, id: u64, (day, month): (u8, u8)) -> Result<(), LockError> {
        println!("in month {month}");
        Ok(())
    }
}

#[distributed_lock(key = "day:<day>")]
async fn neighbour(day: u8, month: u8) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
