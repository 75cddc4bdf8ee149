//! A server whose clock jumps: leases end early, and tokens still grow. A test cannot set it, but it can expire
//! leases early and delete fences.

use rlock_core::{LockClient, LostCause};
use rlock_proto::store::FENCES_A_SECOND;
use rlock_testkit::{RedisServer, eventually};

use crate::common::{
    LONG, assert_lost, client, enqueued, fence, fence_by_clock, its_turn, ms, name,
};
use crate::leases::clock::HOUR;

#[tokio::test]
async fn a_clock_that_jumps_ahead_ends_a_lease_and_the_loss_is_reported() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = one.lock("k").lease(HOUR).acquire().await.expect("free");
    let waiting = enqueued(&server, other.lock("k").lease(HOUR).wait(LONG)).await;
    let _: bool = server.command(&["PEXPIREAT", &name("k"), "1"]).await;
    assert_lost(&guard, LONG, LostCause::Removed).await;
    let next = its_turn(waiting).await;
    assert!(next.token().as_u64() > guard.token().as_u64());
    next.release().await.expect("held");
}

async fn next_token(client: &LockClient) -> u64 {
    let guard = client.lock("k").acquire().await.expect("free");
    let token = guard.token().as_u64();
    guard.release().await.expect("held");
    token
}

#[tokio::test]
async fn tokens_grow_although_their_last_one_is_forgotten() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let fence = fence("k");
    let mut last = 0;
    for round in 0..10 {
        let token = next_token(&client).await;
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        match round % 5 {
            0 => server.flush_all().await,
            1 => assert!(server.del(&fence).await),
            2 => {
                let _: bool = server.command(&["PEXPIRE", &fence, "1"]).await;
                let gone = async || !server.exists(&fence).await;
                eventually(LONG, "it expires", gone).await;
            }
            // The fence is deleted while the lock is held, and before `min_hold` keeps it taken.
            3 => {
                let lock = client.lock("k").lease(HOUR).min_hold(ms(50));
                let guard = lock.acquire().await.expect("free");
                last = guard.token().as_u64();
                assert!(server.del(&fence).await);
                guard.release().await.expect("held");
            }
            _ => {}
        }
        assert!(last / 128 <= fence_by_clock(), "the next fence is larger");
    }
}

/// A fence that is ahead of the clock stands for a clock that has stepped back since, and its deletion for the end of the
/// time for which the server keeps it.
#[tokio::test]
async fn a_client_continues_from_the_largest_token_that_it_has_seen_at_the_server() {
    let server = RedisServer::start();
    let (holder, waiter, refused) = (
        client(&server).await,
        client(&server).await,
        client(&server).await,
    );
    let of_a = fence("a");
    let ahead = fence_by_clock() + 3_600 * FENCES_A_SECOND;
    let () = server.command(&["SET", &of_a, &ahead.to_string()]).await;
    let guard = holder.lock("a").acquire().await.expect("free");
    assert!(
        refused
            .lock("a")
            .try_acquire()
            .await
            .expect("it replies")
            .is_none()
    );
    let waiting = enqueued(&server, waiter.lock("a").wait(LONG)).await;
    let first = guard.token().as_u64();
    guard.release().await.expect("held");
    let guard = its_turn(waiting).await;
    let last = guard.token().as_u64();
    guard.release().await.expect("held");
    for (client, seen) in [(&holder, first), (&waiter, last), (&refused, first)] {
        let token = next_token(client).await;
        assert!(token > seen, "{token} after {seen}");
        assert!(server.del(&fence("k")).await);
    }
    let newcomer = client(&server).await;
    assert!(next_token(&newcomer).await < first, "it has seen none");
    // A fence far ahead of the clock is not a lower bound.
    let far = (1_u64 << 46) - 100;
    let () = server.command(&["SET", &of_a, &far.to_string()]).await;
    let guard = newcomer.lock("a").acquire().await.expect("free");
    assert!(guard.token().as_u64() / 128 > far);
    assert!(next_token(&newcomer).await / 128 <= fence_by_clock());
}

/// The clock does not matter while the fence exists.
#[tokio::test]
async fn tokens_grow_under_a_clock_that_goes_back_and_forth() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let fence = fence("k");
    let mut last = next_token(&client).await;
    for years in [1, 10, 50] {
        // A fence from a time when the clock was ahead.
        let ahead = fence_by_clock() + years * 31_557_600 * FENCES_A_SECOND;
        let () = server.command(&["SET", &fence, &ahead.to_string()]).await;
        for _ in 0..3 {
            let token = next_token(&client).await;
            assert!(
                token > last && token / 128 > ahead,
                "{token} after {last}, {ahead}"
            );
            last = token;
        }
    }
}
