//! A server that replies after a call was decided.

use rlock_core::StoreUrl;
use rlock_testkit::{Proxy, RedisServer, eventually};

use super::{Servers, give_to_another};
use crate::common::{LONG, connect_with, fence, ms, name};

/// All permissions, except to be queued.
const NO_PLACE: &str = "on >secret ~lock:* &lock:* +@all -zadd";

/// Two servers refuse the lock, and the third one executes the request later.
#[tokio::test]
async fn a_late_grant_to_a_call_that_does_not_wait_is_rolled_back() {
    let server = RedisServer::builder().acl_user("locker", NO_PLACE);
    let three = Servers((0..3).map(|_| server.clone().start()).collect());
    let late = &three.0[2];
    let proxy = Proxy::in_front_of(late);
    let urls = three.0.iter().map(|each| each.url_as("locker", "secret"));
    let mut urls: Vec<_> = urls.collect();
    urls[2] = urls[2].replace(&late.address(), &proxy.address());
    // A new connection could overtake the requests that are held.
    let client = connect_with(LONG * 2, StoreUrl::quorum(urls)).await;
    for attempt in 0..10 {
        let key = format!("k{attempt}");
        give_to_another(&three.0[..2], &key).await;
        proxy.hold_requests();
        // The lease does not end during the test.
        let lock = client.lock(&key).lease(LONG * 3);
        let refused = lock.try_acquire().await.expect("a reply");
        assert!(refused.is_none(), "{refused:?}");
        proxy.pass();
        let fence = fence(&key);
        for _ in 0..200 {
            if late.exists(&fence).await {
                eventually(LONG, "the late grant is rolled back", async || {
                    !late.exists(&name(&key)).await
                })
                .await;
                return;
            }
            tokio::time::sleep(ms(10)).await;
        }
        // The server was not connected yet, or a busy machine would have sent the request too late.
    }
    panic!("the late server never got the request");
}
