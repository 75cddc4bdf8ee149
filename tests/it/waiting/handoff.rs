//! Hand-off: the store passes a lock to the next client, past waiters that are dead or paused.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicBool, Ordering},
};

use futures_util::StreamExt as _;
use redis::aio::PubSub;
use rlock_core::{LockClient, LockError, LostCause};
use rlock_testkit::{Proxy, RedisServer, Worker, eventually, within};

use crate::common::{
    LASTING, LONG, acquiring, assert_nothing_left, assert_soon_listening, assert_soon_queued,
    builder, cause_of, client, connect, connect_with, count, enqueued, fence, hold, its_turn, ms,
    name, queue, resp2, wait_queue, waiting_process,
};

/// The milliseconds for which a lock is reserved for a waiter that has not confirmed it.
const GRACE: i64 = 1000;

/// Waiters of other clients. They joined the queue long ago, and they listen but never act.
struct Silent {
    messages: PubSub,
    owners: Vec<String>,
}

impl Silent {
    async fn queue(server: &RedisServer, count: usize) -> Self {
        let redis = redis::Client::open(server.url()).expect("a valid URL");
        let mut messages = redis.get_async_pubsub().await.expect("the server is up");
        let mut owners = Vec::new();
        for number in 1..=count {
            let id = format!("{number:08}-0000-4000-8000-000000000000");
            let done = messages.subscribe(format!("lock:client:{id}")).await;
            done.expect("permitted");
            let (since, owner) = (number.to_string(), format!("{id}:1"));
            let words = ["ZADD", &queue("k"), &since, &owner];
            assert_eq!(server.command::<u64>(&words).await, 1);
            owners.push(owner);
        }
        Self { messages, owners }
    }

    /// Disconnects the first waiter, which stays in the queue.
    async fn first_dies(&mut self) {
        let channel = format!("lock:client:{}", &self.owners.remove(0)[..36]);
        self.messages.unsubscribe(channel).await.expect("permitted");
    }

    /// Asserts that only these waiters are queued, and that the first was told to ask again after a time (ms) in this range,
    /// and the second and the last a grace period later.
    async fn assert_first_is_told(&mut self, server: &RedisServer, range: RangeInclusive<i64>) {
        assert_eq!(wait_queue(server, "k").await, self.owners);
        let (lock, received) = (name("k"), self.received(server).await);
        let [first, second, last] = self.owners.as_slice() else {
            panic!("there are three")
        };
        let after = received.first().and_then(|text| text.split(' ').nth(2));
        let after: i64 = after.expect("a message").parse().expect("a time");
        assert!(range.contains(&after), "{after}");
        let later = after + GRACE;
        let expected = [
            format!("{first}  {after} {lock}"),
            format!("{second}  {later} {lock}"),
            format!("{last}  {later} {lock}"),
        ];
        assert_eq!(received, expected);
    }

    /// Returns the messages that the waiters have received, in this order.
    async fn received(&mut self, server: &RedisServer) -> Vec<String> {
        let channel = format!("lock:client:{}", &self.owners[0][..36]);
        let heard: u64 = server.command(&["PUBLISH", &channel, "end"]).await;
        assert_eq!(heard, 1);
        let messages = self.messages.on_message();
        let texts = messages.map(|message| message.get_payload::<String>().expect("text"));
        let texts = texts.take_while(|text| std::future::ready(text != "end"));
        within(LONG, "all messages arrive", texts.collect()).await
    }
}

/// Returns the last fence of the lock.
async fn last_fence(server: &RedisServer) -> u64 {
    server.command(&["GET", &fence("k")]).await
}

#[tokio::test]
async fn a_release_hands_the_lock_off_to_the_next_waiter_in_the_same_step() {
    let server = RedisServer::start();
    let one = client(&server).await;
    let held = hold(&one, "k").await;
    let mut waiting = Silent::queue(&server, 1).await;
    let token = held.token().as_u64();
    held.release().await.expect("held");
    assert_eq!(wait_queue(&server, "k").await, [""; 0]);
    let fence = last_fence(&server).await;
    assert!(fence * 128 > token);
    let granted = format!("{} {fence}/0 {GRACE} {}", waiting.owners[0], name("k"));
    assert_eq!(waiting.received(&server).await, [granted]);
}

/// A dead holder's lock ends without a notification, and then a new client asks before the waiter does.
#[tokio::test]
async fn a_newcomer_that_finds_the_lock_free_does_not_overtake_its_waiter() {
    let server = RedisServer::start();
    let newcomer = builder().response_timeout(LONG);
    let newcomer = newcomer.connect(&server.url()).await.expect("it is up");
    let mut waiting = Silent::queue(&server, 1).await;
    let refused = newcomer.lock("k").wait(ms(0)).acquire().await;
    let fence = last_fence(&server).await;
    let granted = format!("{} {fence}/0 {GRACE} {}", waiting.owners[0], name("k"));
    assert_eq!(waiting.received(&server).await, [granted]);
    let Err(LockError::Taken { remaining, .. }) = refused else {
        panic!("{refused:?}")
    };
    // A newcomer that waits asks again as soon as the waiter's time has passed.
    assert!(
        remaining.is_some_and(|left| left <= ms(1000)),
        "{remaining:?}"
    );
    let next = newcomer.lock("k").wait(LONG).acquire().await;
    let next = next.expect("the waiter does not confirm its lock");
    assert!(next.token().as_u64() > fence * 128);
}

/// The next waiter may be dead as well, whereas the last one was active most recently.
#[tokio::test]
async fn the_next_and_the_last_waiter_ask_again_when_the_new_owner_may_be_dead() {
    let server = RedisServer::start();
    let one = client(&server).await;
    let held = hold(&one, "k").await;
    let mut waiting = Silent::queue(&server, 3).await;
    held.release().await.expect("held");
    let (lock, fence) = (name("k"), last_fence(&server).await);
    let received = waiting.received(&server).await;
    let [first, second, last] = waiting.owners.as_slice() else {
        panic!("there are three")
    };
    let expected = [
        format!("{first} {fence}/1 {GRACE} {lock}"),
        format!("{second}  {GRACE} {lock}"),
        format!("{last}  {GRACE} {lock}"),
    ];
    assert_eq!(received, expected);
}

/// Only the first waiter learns that a lock became free without a release, so it must be one that is alive.
#[tokio::test]
async fn a_release_that_keeps_the_lock_tells_the_first_waiter_that_is_alive() {
    let server = RedisServer::start();
    let one = client(&server).await;
    let lock = one.lock("k").lease(LASTING).min_hold(LONG);
    let held = lock.acquire().await.expect("free");
    let mut waiting = Silent::queue(&server, 4).await;
    waiting.first_dies().await;
    held.release().await.expect("held");
    waiting.assert_first_is_told(&server, 1..=60_000).await;
}

#[tokio::test]
async fn a_first_waiter_that_gives_up_tells_the_next_one_that_is_alive() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let going = tokio::spawn(async move { other.lock("k").wait(LONG).acquire().await });
    assert_soon_queued(&server, "k", 1).await;
    let first = wait_queue(&server, "k").await.remove(0);
    let words = ["ZADD", &queue("k"), "XX", "0", &first];
    assert_eq!(server.command::<u64>(&words).await, 0);
    let mut waiting = Silent::queue(&server, 4).await;
    waiting.first_dies().await;
    going.abort();
    assert_soon_queued(&server, "k", 3).await;
    waiting.assert_first_is_told(&server, 0..=0).await;
    drop(held);
}

/// A proxy holds the requests of the waiter behind the processes, which would remove these, too.
#[tokio::test]
async fn a_waiting_process_that_is_killed_is_skipped_at_once() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let other = connect_with(LONG, &proxy.url()).await;
    let one = client(&server).await;
    let held = hold(&one, "k").await;
    let mut victims = Vec::new();
    for place in 1..=2 {
        victims.push(waiting_process(&server, place).await);
    }
    let waiting = acquiring(other.lock("k").lease(LASTING).wait(LONG));
    assert_soon_queued(&server, "k", 3).await;
    victims.iter_mut().for_each(Worker::kill);
    assert_soon_listening(&server, 2).await;
    proxy.hold_requests();
    held.release().await.expect("held");
    assert_eq!(wait_queue(&server, "k").await, [""; 0]);
    proxy.pass();
    its_turn(waiting).await.release().await.expect("held");
    assert_nothing_left(&server).await;
}

/// While the lock has a reader, no release hands it off to the writer.
#[tokio::test]
async fn the_next_release_by_a_reader_lets_in_a_reader_behind_a_killed_writer() {
    let server = RedisServer::start();
    let [one, other, behind] = [client(&server), client(&server), client(&server)];
    let (one, other, behind) = (one.await, other.await, behind.await);
    let read = |client: &LockClient| client.lock("k").shared().lease(LASTING).wait(LONG);
    let stays = read(&one).acquire().await.expect("free");
    let goes = read(&other).acquire().await.expect("shared");
    let mut writer = waiting_process(&server, 1).await;
    let waiting = acquiring(read(&behind));
    assert_soon_queued(&server, "k", 2).await;
    writer.kill();
    assert_soon_listening(&server, 3).await;
    goes.release().await.expect("held");
    assert_eq!(wait_queue(&server, "k").await, [""; 0]);
    its_turn(waiting).await.release().await.expect("held");
    stays.release().await.expect("held");
    assert_nothing_left(&server).await;
}

/// A grant during its pause does not count for the paused waiter.
#[tokio::test]
async fn a_paused_waiter_costs_the_grace_period() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = hold(&one, "k").await;
    let mut sleeper = waiting_process(&server, 1).await;
    sleeper.pause();
    held.release().await.expect("held");
    let reserved = server.pttl(&name("k")).await;
    assert!(reserved <= GRACE, "{reserved}");
    let lock = other.lock("k").lease(LASTING).wait(LONG);
    let guard = lock.acquire().await.expect("after the grace period");

    sleeper.resume();
    assert_soon_queued(&server, "k", 1).await;
    assert_eq!(count(&server, &guard).await, Some(1));
    let token = guard.token().as_u64();
    guard.release().await.expect("held");
    let before = sleeper.expect_line(LONG, "holding").await;
    assert_eq!(before, [""; 0]);
    sleeper.send("token?");
    let answer = sleeper.line(LONG).await.expect("a token");
    let of_sleeper = answer.strip_prefix("token ").and_then(|n| n.parse().ok());
    assert!(of_sleeper > Some(token), "{answer}, after {token}");
}

#[tokio::test]
async fn a_message_that_is_lost_costs_one_timer() {
    const GIVE: &str = "redis.call('DEL', KEYS[1]) \
        redis.call('ZREM', KEYS[1] .. ':queue', ARGV[1]) \
        redis.call('HSET', KEYS[1], ARGV[1], 1) \
        return redis.call('PEXPIRE', KEYS[1], 1000)";
    let server = RedisServer::start();
    let url = resp2(&server.url());
    let (one, other) = (connect(&url).await, connect(&url).await);
    let held = hold(&one, "k").await;
    let waiting = enqueued(&server, other.lock("k").lease(LASTING).wait(LONG)).await;
    let next = wait_queue(&server, "k").await.remove(0);
    let given: u64 = server
        .command(&["EVAL", GIVE, "1", &name("k"), &next])
        .await;
    assert_eq!(given, 1);
    its_turn(waiting).await.release().await.expect("held");
    let outcome = held.release().await;
    assert_eq!(cause_of(outcome), Some(LostCause::Removed));
    assert_nothing_left(&server).await;
}

/// The reply to the release is lost, and so are all its repetitions until the network heals.
#[tokio::test]
async fn a_release_that_is_repeated_after_the_hand_off_succeeds() {
    let server = RedisServer::start();
    let other = client(&server).await;
    for next_holds in [true, false] {
        let proxy = Proxy::in_front_of(&server);
        // With one connection, and no time-out, the release is the first request about the held lock.
        let one = builder().second_connection(false).response_timeout(LONG);
        let one = one.connect(&proxy.url()).await.expect("it is up");
        let held = one.lock("k").lease(LASTING).acquire().await.expect("free");
        let waiting = enqueued(&server, other.lock("k").lease(LASTING).wait(LONG)).await;
        proxy.drop_replies_if(1, |request| request.mentions(&name("k")));
        let is_first_gone = AtomicBool::new(false);
        proxy.drop_requests_if(u64::MAX, move |request| {
            request.mentions(&name("k")) && is_first_gone.swap(true, Ordering::SeqCst)
        });
        let release = tokio::spawn(held.release());
        let next = its_turn(waiting).await;
        let next = if next_holds {
            Some(next)
        } else {
            next.release().await.expect("held");
            None
        };
        eventually(LONG, "the reply is lost", async || {
            proxy.replies_lost() == 1
        })
        .await;
        assert!(!release.is_finished(), "all its repetitions are lost");
        proxy.pass();
        let outcome = within(LONG, "it is repeated", release).await;
        outcome.expect("no panic").expect("it was done");
        if let Some(next) = next {
            assert_eq!(count(&server, &next).await, Some(1));
            next.release().await.expect("held");
        }
        assert_nothing_left(&server).await;
    }
}
