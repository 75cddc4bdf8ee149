use rlock_core::{LockError, distributed_lock};

const NIGHT: &str = "night";

#[distributed_lock(key = concat!("order:", "<id>"))]
async fn by_macro(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = NIGHT)]
async fn by_constant() -> Result<&'static str, LockError> {
    Ok(NIGHT)
}

#[distributed_lock(key = ["night", format!("order:{id}")])]
fn in_a_list(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = ids.iter().map(|id| format!("order:{id}")))]
fn of_an_iterator(ids: Vec<u64>) -> Result<usize, LockError> {
    Ok(ids.len())
}

fn main() {}
