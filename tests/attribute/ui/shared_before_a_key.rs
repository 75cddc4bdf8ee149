use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = shared)]
async fn no_key() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = [shared, "order:<id>"])]
async fn no_key_in_a_list(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = ["tenant" shared, "order"])]
async fn behind_a_key() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = [shared "tenant" "order"])]
async fn no_comma() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = shared ["tenant", "order"])]
async fn a_list() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = [shared TENANT, "order"])]
async fn no_literal() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = shared 42)]
async fn another_kind() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = [exclusive "tenant", "order"])]
async fn another_word() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = [shared "tenant:<tenant", shared "order:<absent>"])]
fn a_broken_template() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
