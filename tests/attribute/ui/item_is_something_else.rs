use rlock_core::distributed_lock;

#[distributed_lock(key = "order")]
const LIMIT: u8 = 3;

#[distributed_lock(key = "order")]
mod orders {}

#[distributed_lock(key = "order")]
static COUNT: u8 = 3;

// What `#[automock]` of mockall makes.
#[distributed_lock(key = "order")]
pub mod __mock_MockOrders {}

fn main() {
    let _ = (LIMIT, COUNT);
}
