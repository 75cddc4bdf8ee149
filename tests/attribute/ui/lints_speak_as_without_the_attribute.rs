#![deny(dead_code, unused_variables, unused_assignments, unused_mut, unused_must_use)]
#![deny(unreachable_code, unused_braces, unfulfilled_lint_expectations)]

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

#[distributed_lock(key = "night")]
pub async fn bound_again(id: u64, name: &str) -> Result<usize, LockError> {
    let id = 5;
    let name = name.len();
    Ok(id + name)
}

#[distributed_lock(key = "night")]
pub async fn assigned(mut id: u64, mut amount: u64) -> Result<u64, LockError> {
    id = 5;
    amount += 5;
    Ok(1)
}

#[distributed_lock(key = "night")]
pub fn bound_again_here(id: u64) -> Result<u64, LockError> {
    let id = 5;
    Ok(id)
}

#[distributed_lock(key = "night")]
pub fn assigned_here(mut id: u64, mut amount: u64) -> Result<u64, LockError> {
    id = 5;
    amount += 5;
    Ok(1)
}

pub struct Order {
    pub id: u64,
    pub lines: u64,
}

#[distributed_lock(key = "night")]
pub async fn parts(Order { id, lines }: Order, (left, right): (u64, u64)) -> Result<u64, LockError> {
    Ok(lines + right)
}

#[distributed_lock(key = "night")]
pub fn as_expected(
    #[expect(unused_variables)] id: u64,
    #[allow(unused)] lines: u64,
    #[cfg_attr(all(), allow(unused))] total: u64,
) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id>", wait = wait, or_else = |error| drop((name, error)))]
pub async fn used_by_the_options(id: u64, wait: std::time::Duration, name: &str) {}

fn main() {}
