use rlock_core::distributed_lock;

#[distributed_lock(key = "order")]
const LIMIT: u8 = 3;

#[distributed_lock(key = "order")]
mod orders {}

#[distributed_lock(key = "order")]
static COUNT: u8 = 3;

fn main() {
    let _ = (LIMIT, COUNT);
}
