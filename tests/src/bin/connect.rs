//! Connects to a URL, acquires a lock once, and prints the outcome. Tests of environment variables
//! start it as a process.

use rlock_core::{LockClient, LockError};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let url = std::env::args().nth(1).expect("usage: connect URL");
    match lock(&url).await {
        Ok(count) => println!("locked {count} time(s)"),
        Err(error) => println!("failed: {error:#}"),
    }
}

async fn lock(url: &str) -> Result<u32, LockError> {
    let client = LockClient::connect(url).await?;
    let lock = client.lock("order:42");
    let guard = lock.acquire().await?;
    let inner = guard.scope(lock.acquire()).await?;
    let count = inner.depth();
    inner.release().await?;
    guard.release().await?;
    Ok(count)
}
