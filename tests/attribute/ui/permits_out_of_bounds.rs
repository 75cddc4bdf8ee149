use rlock_core::{LockError, distributed_lock};

#[distributed_lock(key = "call", permits = 0)]
async fn none() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "call", permits = 0x0_u32)]
async fn none_in_hexadecimal() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "call", permits = 4_294_967_296)]
async fn too_many() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "call", permits = 340_282_366_920_938_463_463_374_607_431_768_211_456)]
fn far_too_many() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
