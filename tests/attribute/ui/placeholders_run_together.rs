use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>-<line>")]
async fn apart_by_what_a_value_may_hold(id: u64, line: u64) -> Result<u64, LockError> {
    Ok(id + line)
}

#[distributed_lock(key = "<id:04><line:04>")]
async fn of_a_width(id: u64, line: u64) -> Result<u64, LockError> {
    Ok(id + line)
}

fn main() {}
