//! A server with late replies or none: its leftovers, and the delay for callers.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::{Lock, LockClient, LockError};
use rlock_testkit::{Exclusion, Proxy, RedisServer, eventually};

use super::five::{SOON, Servers, give_to_another};
use crate::common::{LASTING, LONG, acquiring, hold, ms, name, queue, timed};

/// All permissions, except to be queued.
const NO_PLACE: &str = "on >secret ~lock:* &lock:* +@all -zadd";

/// The fate of a caller before the last server replies.
#[derive(Debug, Clone, Copy)]
enum Caller {
    AsksOnce,
    WaitsInVain,
    IsCancelled,
    StillWaits,
}

impl Caller {
    /// Calls the lock while two servers reply that another owner has it.
    async fn asks(self, lock: Lock) {
        match self {
            Self::AsksOnce => {
                let answer = lock.try_acquire().await.expect("a reply");
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

    /// Returns whether the third server received the request. By then it has rolled its grant back.
    async fn is_granted_by_a_minority(self) -> bool {
        let server = RedisServer::builder().acl_user("locker", NO_PLACE);
        let three: Vec<_> = (0..3).map(|_| server.clone().start()).collect();
        let urls = three.iter().map(|server| server.url_as("locker", "secret"));
        let client = LockClient::quorum(urls).await.expect("all servers are up");
        give_to_another(&three[..2], "k").await;
        let late = &three[2];
        late.pause();
        self.asks(client.lock("k").lease(LASTING)).await;
        late.resume();
        tokio::time::sleep(ms(500)).await;
        let what = format!("the late grant is rolled back: {self:?}");
        eventually(LONG, &what, async || !late.exists(&name("k")).await).await;
        late.exists(&format!("{}:fence", name("k"))).await
    }

    /// Repeats the case, because a busy machine may drop a request before it is sent.
    async fn assert_granted_by_a_minority(self) {
        for _ in 0..10 {
            if self.is_granted_by_a_minority().await {
                return;
            }
        }
        panic!("{self:?}: the late server never got the request");
    }
}

#[tokio::test]
async fn a_late_grant_to_a_call_that_does_not_wait_is_rolled_back() {
    Caller::AsksOnce.assert_granted_by_a_minority().await;
}

#[tokio::test]
async fn a_late_grant_to_a_waiter_that_is_not_queued_is_rolled_back() {
    for caller in [Caller::WaitsInVain, Caller::IsCancelled, Caller::StillWaits] {
        caller.assert_granted_by_a_minority().await;
    }
}

/// A paused server does not receive requests whose calls have ended meanwhile.
#[tokio::test]
async fn what_is_tried_together_with_others_is_not_asked_for_after_it_was_given_up() {
    let three = Servers::some(3);
    let client = three.client().await;
    let late = &three.0[2];
    let keys: Vec<String> = (0..64).map(|n| format!("k{n}")).collect();
    for key in &keys {
        give_to_another(&three.0[..2], key).await;
        let gone = "00000000-0000-0000-0000-000000000000:1";
        let _: u64 = late.command(&["ZADD", &queue(key), "1", gone]).await;
    }
    late.pause();
    let locks = keys.iter().map(|key| client.lock(key).lease(LASTING));
    let asked = locks.map(|lock| async move { lock.try_acquire().await });
    for answer in join_all(asked).await {
        assert!(
            answer.expect("a reply").is_none(),
            "another owner has the lock"
        );
    }
    late.resume();
    tokio::time::sleep(ms(1000)).await;
    for key in &keys {
        assert!(!late.exists(&name(key)).await, "{key} is free");
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
        // Before and after the client has noticed the silence.
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

/// A call that retries with the same owner has to know that its votes are rolled back. It hardly
/// waits for that beyond its own wait.
#[tokio::test]
async fn a_wait_ends_in_time_although_a_server_falls_silent_after_its_reply() {
    const WAIT: Duration = Duration::from_secs(3);
    // A call with the first server's vote also asks the others, which are slow.
    for silent in 1..3 {
        let three = Servers::some(3);
        let proxies: Vec<Proxy> = three.0.iter().map(Proxy::in_front_of).collect();
        let patient = LockClient::builder().response_timeout(LONG);
        let client = patient.quorum(proxies.iter().map(Proxy::url)).await;
        let client = client.expect("all servers are up");
        let (member, way) = (&three.0[silent], &proxies[silent]);
        for taken in (0..3).filter(|n| *n != silent) {
            give_to_another(&three.0[taken..=taken], "k").await;
        }
        // The connection fails between its vote and the roll-back.
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
        assert!(member.exists(&name("k")).await, "it receives no reply");
        proxies.iter().for_each(Proxy::pass);
        eventually(LONG, "its grant is rolled back", async || {
            !member.exists(&name("k")).await
        })
        .await;
    }
}

#[tokio::test]
async fn a_waiter_that_is_not_queued_does_not_poll_while_a_server_is_silent() {
    let three: Vec<_> = (0..3)
        .map(|_| RedisServer::builder().acl_user("locker", NO_PLACE).start())
        .collect();
    let urls = three.iter().map(|server| server.url_as("locker", "secret"));
    let client = LockClient::quorum(urls).await.expect("all servers are up");
    give_to_another(&three, "k").await;
    three[2].pause();
    let mut watch = three[0].watch_commands().await;
    let (outcome, took) = timed(client.lock("k").wait(ms(2000)).acquire()).await;
    let error = outcome.expect_err("taken");
    assert!(matches!(error, LockError::Timeout { .. }), "{error:?}");
    assert!(took >= ms(2000), "{took:?}");
    let asked = watch.count_of("EVALSHA").await;
    assert!(asked < 60, "{asked} requests in {took:?}");
    three[2].resume();
}

/// Each change of the lock wakes all waiters, and each request of a waiter may be such a change.
#[tokio::test]
async fn waiters_that_are_not_queued_pass_a_lock_around_without_polling() {
    const CLIENTS: u32 = 4;
    const EACH: u32 = 3;
    let three: Vec<_> = (0..3)
        .map(|_| RedisServer::builder().acl_user("locker", NO_PLACE).start())
        .collect();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let urls = three.iter().map(|server| server.url_as("locker", "secret"));
        clients.push(LockClient::quorum(urls).await.expect("all servers are up"));
    }
    let mut watch = three[0].watch_commands().await;
    let exclusion = Exclusion::new();
    let calls = clients.iter().map(async |client| {
        for _ in 0..EACH {
            let lock = client.lock("k").lease(LASTING).wait(LONG * 3);
            let guard = lock.acquire().await.expect("its turn");
            {
                let _inside = exclusion.enter("a waiter");
                tokio::time::sleep(ms(100)).await;
            }
            guard.release().await.expect("held");
        }
    });
    let (_, took) = timed(join_all(calls)).await;
    exclusion.assert_held();
    let asked = watch.count_of("EVALSHA").await;
    println!("{asked} requests in {took:?}");
    // By the timers alone each change of holder would take up to five seconds.
    assert!(took < ms(1500) * CLIENTS * EACH, "{took:?}");
    // A request, its retries and its rollback for each waiter, twice a second.
    let rounds = u64::from(CLIENTS) * (took.as_secs() + 1) * 2;
    assert!(asked <= rounds * 8, "{asked} requests in {took:?}");
}

/// Each request takes the lock at the third server and releases it, which notifies the other waiters.
#[tokio::test]
async fn waiters_that_are_not_queued_do_not_wake_each_other_without_end() {
    const CLIENTS: u32 = 4;
    let three: Vec<_> = (0..3)
        .map(|_| RedisServer::builder().acl_user("locker", NO_PLACE).start())
        .collect();
    give_to_another(&three[..2], "k").await;
    let mut waiting = Vec::new();
    for _ in 0..CLIENTS {
        let urls = three.iter().map(|server| server.url_as("locker", "secret"));
        let client = LockClient::quorum(urls).await.expect("all servers are up");
        waiting.push(acquiring(client.lock("k").lease(LASTING).wait(LONG)));
    }
    let mut watch = three[0].watch_commands().await;
    let ((), took) = timed(tokio::time::sleep(ms(4000))).await;
    let asked = watch.count_of("EVALSHA").await;
    println!("{asked} requests in {took:?}");
    // The pauses grow to half a second. A release follows each request.
    assert!(
        asked <= u64::from(CLIENTS) * (took.as_secs() + 1) * 8,
        "{asked} in {took:?}"
    );
    for waiter in &waiting {
        waiter.abort();
    }
}
