//! A server that answers late, or not at all: what is left there, and how long callers wait for it.

use std::time::Duration;

use rlock_core::{Lock, LockClient, LockError};
use rlock_tests::{Proxy, RedisServer, eventually};

use crate::{
    common::{LASTING, LONG, acquiring, hold, ms, name, timed},
    five::{SOON, Servers, give_to_another},
};

/// May do everything but stand in line.
const NO_PLACE: &str = "on >secret ~lock:* &lock:* +@all -zadd";

/// What becomes of a caller before the last server answers.
#[derive(Debug, Clone, Copy)]
enum Caller {
    AsksOnce,
    WaitsInVain,
    IsCancelled,
    /// Without a place in line.
    StillWaits,
}

impl Caller {
    /// Asks, while two servers say that another has the lock.
    async fn asks(self, lock: Lock) {
        match self {
            Self::AsksOnce => {
                let answer = lock.try_acquire().await.expect("an answer");
                assert!(answer.is_none(), "{answer:?}");
            }
            Self::WaitsInVain => {
                let error = lock.wait(ms(500)).acquire().await.expect_err("taken");
                assert!(matches!(error, LockError::Timeout { .. }), "{error:?}");
            }
            Self::IsCancelled => {
                let waiting = acquiring(lock.wait(LONG));
                tokio::time::sleep(ms(500)).await;
                waiting.abort();
            }
            Self::StillWaits => {
                let _waiting = acquiring(lock.wait(LONG));
                tokio::time::sleep(ms(500)).await;
            }
        }
    }
}

/// Nothing is left at that server but the token.
#[tokio::test]
async fn a_vote_that_comes_too_late_for_one_without_a_place_in_line_is_taken_back() {
    for caller in [
        Caller::AsksOnce,
        Caller::WaitsInVain,
        Caller::IsCancelled,
        Caller::StillWaits,
    ] {
        let server = RedisServer::builder().acl_user("locker", NO_PLACE);
        let three: Vec<_> = (0..3).map(|_| server.clone().start()).collect();
        let urls = three.iter().map(|server| server.url_as("locker", "secret"));
        let client = LockClient::quorum(urls).await.expect("all are there");
        give_to_another(&three[..2], "k").await;
        let late = &three[2];
        late.pause();
        caller.asks(client.lock("k").lease(LASTING)).await;
        late.resume();
        eventually(LONG, "it has voted, and taken that back", async || {
            late.keys("lock:*").await == [format!("{}:fence", name("k"))]
        })
        .await;
    }
}

#[tokio::test]
async fn a_wait_ends_in_time_although_a_server_is_silent() {
    const WAIT: Duration = Duration::from_millis(300);
    for silent in 0..3 {
        let three = Servers::some(3);
        let (one, other) = (three.client().await, three.client().await);
        let guard = hold(&one, "k").await;
        three.pause([silent]);
        // Not yet known to be silent, and then known.
        for _ in 0..3 {
            let (outcome, took) = timed(other.lock("k").wait(WAIT).acquire()).await;
            let error = outcome.expect_err("taken");
            assert!(matches!(error, LockError::Timeout { .. }), "{error:?}");
            assert!(took >= WAIT && took < WAIT + SOON, "{silent}: {took:?}");
        }
        three.resume([silent]);
        guard.release().await.expect("held");
        three.assert_soon_clean("k", &[0, 1, 2]).await;
    }
}

/// Whoever asks again as the same owner has to know that it has no vote any more, but does not wait for that
/// beyond its own wait for long.
#[tokio::test]
async fn a_wait_ends_in_time_although_a_server_falls_silent_when_it_has_voted() {
    const WAIT: Duration = Duration::from_millis(1200);
    // Whoever has the first server's vote asks the others again, and finds them slow.
    for silent in 1..3 {
        let three = Servers::some(3);
        let proxies: Vec<Proxy> = three.0.iter().map(Proxy::in_front_of).collect();
        let client = LockClient::quorum(proxies.iter().map(Proxy::url)).await;
        let client = client.expect("all are there");
        let (voter, way) = (&three.0[silent], &proxies[silent]);
        for taken in (0..3).filter(|n| *n != silent) {
            give_to_another(&three.0[taken..=taken], "k").await;
        }
        // Between its vote and the request to take that back, the way is gone.
        for proxy in &proxies {
            proxy.delay_replies(ms(1000));
        }
        let lock = client.lock("k").lease(LASTING).wait(WAIT);
        let waiting = tokio::spawn(async move { timed(lock.acquire()).await });
        tokio::time::sleep(ms(500)).await;
        way.black_hole_requests();
        let (outcome, took) = waiting.await.expect("no panic");
        let error = outcome.expect_err("taken");
        assert!(matches!(error, LockError::Timeout { .. }), "{error:?}");
        assert!(took >= WAIT && took < WAIT + SOON, "{silent}: {took:?}");
        assert!(voter.exists(&name("k")).await, "it hears nothing");
        proxies.iter().for_each(Proxy::pass);
        eventually(LONG, "it has taken its vote back", async || {
            !voter.exists(&name("k")).await
        })
        .await;
    }
}
