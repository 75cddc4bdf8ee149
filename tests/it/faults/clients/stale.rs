//! A paused holder that writes after its lease: only a fencing token prevents it.

use std::time::Duration;

use rlock_testkit::{RedisServer, Worker};

use crate::common::{LONG, client, holder};

/// Storage that remembers the largest token so far.
struct Storage(RedisServer);

impl Storage {
    /// Returns whether the storage accepted the write.
    async fn write(&self, token: u64, value: &str) -> bool {
        // Lua's numbers are exact only up to 2^53, so the script compares text of equal length.
        const SCRIPT: &str = "local token = string.format('%20s', ARGV[1])
            if token < (redis.call('HGET', KEYS[1], 'token') or '') then return 0 end
            redis.call('HSET', KEYS[1], 'token', token, 'value', ARGV[2])
            return 1";
        let token = token.to_string();
        let eval = ["EVAL", SCRIPT, "1", "account", &token, value];
        self.0.command(&eval).await
    }

    async fn value(&self) -> String {
        self.0.command(&["HGET", "account", "value"]).await
    }
}

async fn token(worker: &mut Worker) -> u64 {
    worker.send("token?");
    loop {
        let line = worker.line(LONG).await.expect("it replies");
        if let Some(token) = line.strip_prefix("token ") {
            return token.parse().expect("a number");
        }
    }
}

#[tokio::test]
async fn storage_that_compares_tokens_refuses_a_holder_that_was_paused_past_its_lease() {
    const LEASE: Duration = Duration::from_secs(3);
    let (server, storage) = (RedisServer::start(), Storage(RedisServer::start()));
    let mut sleeper = holder(&server, "k", LEASE).await;
    let old = token(&mut sleeper).await;
    assert!(storage.write(old, "by the first").await);

    sleeper.pause();
    let next = client(&server).await;
    let next = next.lock("k").wait(LONG).acquire().await;
    let next = next.expect("the lease has ended");
    assert!(storage.write(next.fencing_token(), "by the next").await);
    assert!(
        storage
            .write(next.fencing_token(), "by the next again")
            .await
    );

    // The holder wakes up and writes with its old token.
    sleeper.resume();
    assert_eq!(token(&mut sleeper).await, old);
    assert!(!storage.write(old, "too late").await);
    assert_eq!(storage.value().await, "by the next again");
    next.release().await.expect("held");
}
