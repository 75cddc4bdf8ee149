//! Fencing tokens grow from hold to hold, whichever majority grants them.

use rlock_core::{LockClient, StoreUrl, Token};
use rlock_proto::store::FENCES_A_SECOND;
use rlock_testkit::eventually;

use super::Servers;
use crate::common::{LASTING, LONG, fence, fence_by_clock};

/// The number of tokens of a fence.
const TOKENS: u64 = 128;

/// The fence of one server is ahead. The next majority learns it from the release, or from the release by force.
#[tokio::test]
async fn tokens_grow_although_the_server_that_was_ahead_is_away_after_the_release() {
    let three = Servers::some(3);
    let client = three.patient().await;
    let fence = fence("k");
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    for is_forced in [false, true] {
        let first = three.granted_by(&[0, 1, 2], &lock).await;
        first.release().await.expect("held");
        let ahead: u64 = three.0[1].command(&["INCRBY", &fence, "1000000"]).await;
        // The server that is ahead and the first one are the majority.
        three.pause([2]);
        let guard = lock.acquire().await.expect("free");
        let token = guard.token().as_u64();
        three.resume([2]);
        if is_forced {
            let other = three.client().await;
            let forced = other.force_release("k").await;
            assert!(forced.expect("a majority replies"), "it was held");
            drop(guard);
        } else {
            guard.release().await.expect("held");
        }
        eventually(LONG, "the others learn the fence", async || {
            let of = async |n: usize| three.0[n].command::<u64>(&["GET", &fence]).await;
            of(0).await >= ahead && of(2).await >= ahead
        })
        .await;
        three.pause([1]);
        // This client has seen no token.
        let other = three.patient().await;
        let next = other.lock("k").lease(LASTING).wait(LONG).acquire().await;
        let next = next.expect("free");
        assert!(next.token().as_u64() > token, "forced: {is_forced}");
        three.resume([1]);
        next.release().await.expect("held");
        three.assert_nothing_left().await;
    }
}

/// As above, after a downgrade: those who join the shared lock ask another majority.
#[tokio::test]
async fn a_reader_that_joins_a_downgraded_lock_has_no_smaller_token() {
    let three = Servers::some(3);
    let client = three.patient().await;
    let fence = fence("k");
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    let first = three.granted_by(&[0, 1, 2], &lock).await;
    first.release().await.expect("held");
    let ahead: u64 = three.0[1].command(&["INCRBY", &fence, "1000000"]).await;
    three.pause([2]);
    let held = lock.acquire().await.expect("free");
    three.resume([2]);
    three.pause([1]);
    held.downgrade().expect("held");
    eventually(
        LONG,
        "a server learns the fence, and keeps it beyond the lease",
        async || {
            let known: u64 = three.0[0].command(&["GET", &fence]).await;
            known >= ahead && three.0[0].pttl(&fence).await > 90_000
        },
    )
    .await;
    let other = three.patient().await;
    let reader = other.lock("k").shared().wait(LONG).acquire().await;
    let reader = reader.expect("shared");
    assert!(reader.token().as_u64() >= held.token().as_u64());
    three.resume([1]);
    reader.release().await.expect("held");
    held.release().await.expect("held");
    three.assert_nothing_left().await;
}

/// Sets fences ahead of the clocks, as if the clocks had stepped back, and deletes them, as if they had expired.
#[tokio::test]
async fn a_client_continues_from_the_largest_token_that_it_has_seen_at_a_quorum() {
    let three = Servers::some(3);
    let client = three.patient().await;
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    // An hour.
    let (fence, ahead) = (fence("k"), fence_by_clock() + 3_600 * FENCES_A_SECOND);
    for server in &three.0 {
        let () = server.command(&["SET", &fence, &ahead.to_string()]).await;
    }
    let mut last = 0;
    for _ in 0..2 {
        let guard = three.granted_by(&[0, 1, 2], &lock).await;
        assert!(guard.token().as_u64() > last.max(ahead * TOKENS));
        last = guard.token().as_u64();
        guard.release().await.expect("held");
        three.assert_nothing_left().await;
        for server in &three.0 {
            server.del(&fence).await;
        }
    }
    let newcomer = three.patient().await;
    let guard = newcomer.lock("k").acquire().await.expect("free");
    assert!(guard.token().as_u64() < last, "it has seen none");
    guard.release().await.expect("held");
    three.assert_nothing_left().await;
}

/// The holder's token comes from the majority that decided. A server that granted the lock after that has a larger fence.
#[tokio::test]
async fn a_silent_holder_loses_its_lock_by_its_token_although_a_server_has_a_larger_fence() {
    let three = Servers::some(3);
    let builder = LockClient::builder().inspectable(false);
    let builder = builder.response_timeout(LONG * 2);
    let silent = builder.connect(StoreUrl::quorum(three.urls())).await;
    let silent = silent.expect("a majority is up");
    let lock = silent.lock("k").lease(LASTING).wait(LONG);
    let guard = three.granted_by(&[0, 1, 2], &lock).await;
    let (token, fence) = (guard.token().as_u64(), fence("k"));
    let of_holder = token / TOKENS;
    for (server, fence_there) in three.0.iter().zip([of_holder, of_holder, of_holder + 9]) {
        let value = fence_there.to_string();
        let () = server.command(&["SET", &fence, &value, "KEEPTTL"]).await;
    }
    let other = three.patient().await;
    // Each majority has a server with the fence of the holder.
    for wrong in [of_holder - 1, of_holder + 1, of_holder + 10] {
        let released = other
            .release_if("k", Token::try_from(wrong * TOKENS).expect("a token"))
            .await;
        assert!(!released.expect("a majority replies"), "{wrong}");
    }
    let released = other
        .release_if("k", Token::try_from(token).expect("a token"))
        .await;
    assert!(released.expect("a majority replies"), "it is its token");
    drop(guard);
    three.assert_nothing_left().await;
}
