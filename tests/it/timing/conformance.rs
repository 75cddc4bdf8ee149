//! A conformance test that a client on a busy machine may answer too late.

use rlock_core::LostCause;
use rlock_testkit::{RedisServer, within};

use crate::common::{LONG, client};

/// The holder compares the tokens if it answers within 200 ms. Otherwise the store does, which knows only the first token of a
/// grant.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
async fn the_token_of_a_later_hold_of_the_same_client_is_known() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let lock = one.lock("tenant:7").retain(LONG);
    let mut tokens = Vec::new();
    for _ in 0..40 {
        let guard = lock.acquire().await.expect("free");
        tokens.push(guard.token());
        guard.release().await.expect("held");
    }
    let guard = lock.acquire().await.expect("free");
    for earlier in tokens {
        let released = other.release_if("tenant:7", earlier).await;
        assert!(!released.expect("a reply"));
    }
    let token = guard.token();
    let info = other.inspect("tenant:7").await.expect("a reply");
    assert_eq!(info.expect("held").token(), Some(token));
    assert!(other.release_if("tenant:7", token).await.expect("a reply"));
    let cause = within(LONG, "the loss is reported", guard.lost()).await;
    assert_eq!(cause, LostCause::Revoked);
    let next = other
        .lock("tenant:7")
        .wait(LONG)
        .acquire()
        .await
        .expect("free");
    assert!(next.token() > token);
}
