//! A store with two clients: the calls of one are cancelled, and the other must not notice.

use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

use rlock_core::{LockClient, LockGuard, Reentry};
use rlock_testkit::{CommandWatch, Gate, RedisServer, eventually, within};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Mutex,
    time::sleep,
};

use super::{
    cut::{Cut, Ending, When},
    renewals,
};
use crate::common::{LONG, ms, resp2};

/// The lease of every lock. No test lasts until its first renewal, after a quarter of it.
pub(crate) const LEASE: Duration = Duration::from_secs(20);
/// Milliseconds on an idle machine. Less than a lease, the expiry of a queue, or a waiter's timer.
const AT_ONCE: Duration = Duration::from_secs(4);
/// A released lock is free long before this time. A lock whose new owner is gone needs a second.
const RELEASED: Duration = Duration::from_millis(800);
/// More polls than any call takes.
const MOST: usize = 60;

/// The owner of a lock that a call finds taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Another call of the same client.
    Own,
    /// The other client.
    Foreign,
}

pub(crate) struct Place {
    what: &'static str,
    server: Option<RedisServer>,
    /// The gate between the client under test and the server.
    gate: Option<Gate>,
    watch: Option<Mutex<CommandWatch>>,
    /// The runtime that made the client, if it is not the current one.
    elsewhere: Option<Runtime>,
    url: String,
    reentry: Reentry,
    /// The client whose calls are cancelled.
    pub(crate) client: LockClient,
    pub(crate) other: LockClient,
    keys: Cell<u32>,
    case: RefCell<String>,
}

impl Place {
    /// The embedded store.
    pub(crate) async fn memory(name: &str, reentry: Reentry) -> Self {
        let url = format!("memory:cancellation-{name}");
        Self::new("memory", None, None, url, reentry).await
    }

    /// A server, whose calls use the caller's connection.
    pub(crate) async fn caller(reentry: Reentry) -> Self {
        let server = RedisServer::start();
        let gate = Gate::in_front_of(&server);
        let url = gate.url();
        Self::new("caller", Some(server), Some((gate, None)), url, reentry).await
    }

    /// Like [`caller`](Self::caller), over RESP2.
    pub(crate) async fn caller_by_resp2(reentry: Reentry) -> Self {
        let server = RedisServer::start();
        let gate = Gate::in_front_of(&server);
        let url = resp2(&gate.url());
        Self::new(
            "caller, resp2",
            Some(server),
            Some((gate, None)),
            url,
            reentry,
        )
        .await
    }

    /// A server, whose calls use the background connection, because another runtime made the
    /// client.
    pub(crate) async fn background(reentry: Reentry) -> Self {
        let server = RedisServer::start();
        let gate = Gate::in_front_of(&server);
        let url = gate.url();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        Self::new(
            "background",
            Some(server),
            Some((gate, Some(runtime))),
            url,
            reentry,
        )
        .await
    }

    async fn new(
        what: &'static str,
        server: Option<RedisServer>,
        gate: Option<(Gate, Option<Runtime>)>,
        url: String,
        reentry: Reentry,
    ) -> Self {
        let (gate, elsewhere) = match gate {
            Some((gate, elsewhere)) => (Some(gate), elsewhere),
            None => (None, None),
        };
        let client = connect(&url, reentry, elsewhere.as_ref()).await;
        let direct = server.as_ref().map_or(url.clone(), RedisServer::url);
        let other = connect(&direct, reentry, None).await;
        let watch = match &server {
            Some(server) => Some(Mutex::new(server.watch_commands().await)),
            None => None,
        };
        Self {
            what,
            server,
            gate,
            watch,
            elsewhere,
            url,
            reentry,
            client,
            other,
            keys: Cell::new(0),
            case: RefCell::default(),
        }
    }

    /// Returns another client like the one under test.
    pub(crate) async fn another_client(&self) -> LockClient {
        connect(&self.url, self.reentry, self.elsewhere.as_ref()).await
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn server(&self) -> Option<&RedisServer> {
        self.server.as_ref()
    }

    /// Runs a case once for every cut, until it completes before the cut. Checks that at least this
    /// many cuts took effect.
    pub(crate) async fn everywhere(
        &self,
        what: &str,
        least: usize,
        case: impl AsyncFn(&str, Cut<'_>) -> Ending,
    ) {
        let mut cuts = 0;
        self.case.replace(what.to_owned());
        for polls in 0..=MOST {
            assert!(polls < MOST, "{what} does not end");
            let mut ended = false;
            for when in self.moments(polls) {
                let gate = self.gate.as_ref();
                let cut = Cut { polls, when, gate };
                let point = format!("{} ({}): {cut}", what, self.what);
                let key = self.fresh_key();
                let ending = within(LONG * 2, &point, case(&key, cut)).await;
                self.assert_nothing_left(&key, &point).await;
                cuts += usize::from(ending == Ending::Cut);
                ended |= ending != Ending::Cut && when == When::RightAfter;
            }
            if ended {
                break;
            }
        }
        // With a slow server, a call may seem to make no progress early.
        assert!(cuts >= least, "{what} ({}): {cuts} cuts", self.what);
    }

    fn moments(&self, polls: usize) -> Vec<When> {
        match (polls, &self.gate) {
            (0, _) => vec![When::RightAfter],
            (_, None) => vec![When::RightAfter, When::Woken],
            (_, Some(_)) => vec![
                When::RightAfter,
                When::Woken,
                When::RequestUnderWay,
                When::AnswerUnderWay,
            ],
        }
    }

    fn fresh_key(&self) -> String {
        self.keys.set(self.keys.get() + 1);
        format!("k-{}", self.keys.get())
    }

    pub(crate) fn holder(&self, whose: Whose) -> &LockClient {
        match whose {
            Whose::Own => &self.client,
            Whose::Foreign => &self.other,
        }
    }

    pub(crate) async fn hold(&self, client: &LockClient, key: &str) -> LockGuard {
        client.lock(key).acquire().await.expect("free")
    }

    /// Waits until the store counts this many entries for the owner of this guard.
    pub(crate) async fn assert_soon_counts(&self, guard: &LockGuard, count: u32, cut: Cut<'_>) {
        let point = format!("{} ({}): {cut}, inside", self.case.borrow(), self.what);
        eventually(AT_ONCE, &point, async || {
            let info = self.other.inspect(guard.key()).await.expect("a reply");
            info.is_some_and(|info| info.owner == guard.owner().to_string() && info.count == count)
        })
        .await;
        assert!(guard.is_valid(), "{point}");
        assert_eq!(guard.count(), count, "{point}");
    }

    /// Checks that the hold has one entry, as before the cut, and releases it.
    pub(crate) async fn assert_held_and_release(&self, guard: LockGuard, cut: Cut<'_>) {
        self.assert_soon_counts(&guard, 1, cut).await;
        guard.release().await.expect("held");
    }

    /// Waits until this many owners are queued for the lock, if the store shows it.
    pub(crate) async fn assert_soon_queued(&self, key: &str, count: u64) {
        if let Some(server) = &self.server {
            crate::common::assert_soon_queued(server, key, count).await;
        }
    }

    /// Checks that there is no lock, no place in the queue and no subscription, and that both
    /// clients can acquire at once.
    pub(crate) async fn assert_nothing_left(&self, key: &str, point: &str) {
        self.assert_released_before_now().await;
        if let Some(server) = &self.server {
            eventually(
                AT_ONCE,
                &format!("{point}: only tokens are left"),
                async || crate::common::only_tokens_are_left(server).await,
            )
            .await;
            self.assert_subscriptions(server, point).await;
        }
        for client in [&self.other, &self.client] {
            let started = Instant::now();
            let guard = within(AT_ONCE, point, client.lock(key).acquire()).await;
            let guard = guard.unwrap_or_else(|error| panic!("{point}: {error}"));
            assert!(started.elapsed() < AT_ONCE, "{point}");
            let released = guard.release().await;
            released.unwrap_or_else(|error| panic!("{point}: {error}"));
            // A caller that is gone, but still queued, would have the lock now.
            let released = Instant::now();
            loop {
                // The time before the request counts, because a busy machine may delay the reply.
                let held_for = released.elapsed();
                let info = self.other.inspect(key).await.expect("a reply");
                if info.is_none() {
                    break;
                }
                assert!(held_for < RELEASED, "{point}: an owner was queued");
                sleep(ms(10)).await;
            }
        }
    }

    /// Waits until the background has done all releases that it got before.
    async fn assert_released_before_now(&self) {
        let key = self.fresh_key();
        drop(self.hold(&self.client, &key).await);
        eventually(AT_ONCE, "the background releases", async || {
            let info = self.other.inspect(&key).await.expect("a reply");
            info.is_none()
        })
        .await;
    }

    /// Checks that the clients subscribe to exactly their own channels, one for each connection.
    async fn assert_subscriptions(&self, server: &RedisServer, point: &str) {
        let listed = async || server.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]).await;
        // A client that was shut down may still be disconnecting.
        eventually(LONG, point, async || listed().await.len() <= 4).await;
        let (channels, patterns): (_, u64) =
            (listed().await, server.command(&["PUBSUB", "NUMPAT"]).await);
        assert_eq!(patterns, 0, "{point}: {channels:?}");
        for channel in channels {
            assert!(channel.starts_with("lock:client:"), "{point}: {channel}");
            assert_eq!(server.subscribers(&channel).await, 1, "{point}: {channel}");
        }
    }

    /// Checks that nothing was renewed after its release, and nothing will be.
    pub(crate) async fn assert_no_late_renewals(&self) {
        let Some(watch) = &self.watch else {
            return;
        };
        let mut watch = watch.lock().await;
        let late = renewals::late(watch.seen().await);
        assert!(late.is_none(), "{}: {late:?}", self.what);
        watch.clear().await;
        sleep(LEASE / 3 + ms(500)).await;
        assert_eq!(
            watch.seen().await,
            [],
            "{}: everything is at rest",
            self.what
        );
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(runtime) = self.elsewhere.take() {
            runtime.shutdown_background();
        }
    }
}

async fn connect(url: &str, reentry: Reentry, runtime: Option<&Runtime>) -> LockClient {
    let builder = crate::common::builder()
        .default_lease(LEASE)
        .default_wait(LONG)
        .reentry(reentry);
    let url = url.to_owned();
    let connecting = async move { builder.connect(&url).await };
    let client = match runtime {
        Some(runtime) => runtime.spawn(connecting).await.expect("no panic"),
        None => connecting.await,
    };
    client.expect("the store is there")
}
