#![deny(dead_code, unused_variables, unused_mut, unused_must_use, unreachable_code, unused_braces)]

use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night")]
async fn never_called() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id>")]
pub async fn unused(id: u64, amount: u32, mut total: u64) -> Result<u64, LockError> {
    let idle = 1;
    Ok(total)
}

#[distributed_lock(key = "order:<id>")]
pub async fn unreachable(id: u64) -> Result<u64, LockError> {
    return Ok(id);
    println!("never");
}

#[distributed_lock(key = "order:<id>")]
pub async fn dropped(id: u64) -> Result<u64, LockError> {
    unused(id, 1, 2);
    Ok({ 1 })
}

#[distributed_lock(key = "night")]
fn never_called_here() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id>")]
pub fn unused_here(id: u64, amount: u32, mut total: u64) -> Result<u64, LockError> {
    let idle = 1;
    Ok(total)
}

#[distributed_lock(key = "order:<id>")]
pub fn unreachable_here(id: u64) -> Result<u64, LockError> {
    return Ok(id);
    println!("never");
}

#[distributed_lock(key = "order:<id>")]
pub fn dropped_here(id: u64) -> Result<u64, LockError> {
    unused_here(id, 1, 2);
    Ok({ 1 })
}

fn main() {}
