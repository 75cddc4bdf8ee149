#![deny(let_underscore_drop)]

use rlock_core::{LockClient, LockError};

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let client = LockClient::in_memory();
    let lock = client.lock("k");
    let _ = lock.acquire().await?;
    let _ = lock.try_acquire().await?;
    Ok(())
}
