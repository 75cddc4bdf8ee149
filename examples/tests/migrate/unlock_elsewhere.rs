//! redislock's `Token()` and redsync's `WithValue`: one request locks an upload, and another one, in another process, unlocks it.

use std::time::Duration;

use rlock_core::{LockClient, LockError, Token};

const LEASE: Duration = Duration::from_secs(15 * 60);

/// The first request returns the token to its caller, as text.
async fn begin(client: &LockClient) -> Result<String, LockError> {
    let guard = client.lock("upload:7").lease(LEASE).acquire().await?;
    Ok(guard.detach()?.to_string())
}

/// Each part extends the lock.
async fn part(client: &LockClient, token: &str) -> Result<bool, LockError> {
    client.extend_if("upload:7", parse(token), LEASE).await
}

async fn end(client: &LockClient, token: &str) -> Result<bool, LockError> {
    client.release_if("upload:7", parse(token)).await
}

fn parse(token: &str) -> Token {
    token.parse().expect("the token of this upload")
}

#[tokio::test]
async fn a_request_in_another_process_unlocks() -> Result<(), LockError> {
    let url = "memory:uploads";
    let first = LockClient::connect(url).await?;
    let token = begin(&first).await?;
    first.shutdown().await?; // a detached lock outlives its process

    let other = LockClient::connect(url).await?;
    assert!(other.lock("upload:7").try_acquire().await?.is_none());
    assert!(part(&other, &token).await?);
    assert!(end(&other, &token).await?);
    assert!(other.lock("upload:7").try_acquire().await?.is_some());
    assert!(!part(&other, &token).await?, "its lock has ended");
    assert!(!end(&other, &token).await?);
    Ok(())
}
