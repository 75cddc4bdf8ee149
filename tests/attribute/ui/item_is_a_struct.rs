use rlock_core::distributed_lock;

#[distributed_lock(key = "order")]
pub struct Order;

#[distributed_lock(key = "order")]
pub(crate) enum State {}

fn main() {}
