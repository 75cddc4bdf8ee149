use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<ids>")]
async fn vector(ids: Vec<u64>) -> Result<usize, LockError> {
    Ok(ids.len())
}

#[distributed_lock(key = "order:<name>:<ids>")]
async fn slice(name: &str, ids: &mut [u64]) -> Result<usize, LockError> {
    Ok(name.len() + ids.len())
}

#[distributed_lock(key = "order:<ids>")]
fn array(ids: &[u64; 2]) -> Result<usize, LockError> {
    Ok(ids.len())
}

struct Order {
    lines: Vec<String>,
    part: Option<u64>,
}

#[distributed_lock(key = "order:<order.lines>")]
async fn field(order: &Order) -> Result<usize, LockError> {
    Ok(order.lines.len())
}

#[distributed_lock(key = "order:<order.part>")]
async fn optional_field(order: &Order) -> Result<u64, LockError> {
    Ok(order.part.unwrap_or_default())
}

#[distributed_lock(key = ["order:<ids[]>", "batch:<ids:?>", "length:<ids.len()>"])]
async fn on_purpose(ids: &[u64]) -> Result<usize, LockError> {
    Ok(ids.len())
}

fn main() {}
