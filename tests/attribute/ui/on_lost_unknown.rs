use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "night", on_lost = "panic")]
async fn night() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
