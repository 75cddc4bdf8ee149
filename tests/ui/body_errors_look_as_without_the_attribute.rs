use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>")]
async fn wrong_tail(id: u64) -> Result<String, LockError> {
    Ok(id)
}

async fn wrong_tail_plain(id: u64) -> Result<String, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>")]
async fn stray_semicolon(id: u64) -> Result<u64, LockError> {
    Ok(id);
}

async fn stray_semicolon_plain(id: u64) -> Result<u64, LockError> {
    Ok(id);
}

#[distributed_lock(key = "order:<id>")]
async fn wrong_argument(id: u64) -> Result<(), LockError> {
    println!("{}", id.len());
    Ok(())
}

async fn wrong_argument_plain(id: u64) -> Result<(), LockError> {
    println!("{}", id.len());
    Ok(())
}

fn main() {}
