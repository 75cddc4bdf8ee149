//! A store with two clients: the calls of one are cancelled, and the other must not notice.

use std::cell::Cell;

use rlock_core::{LockClient, LockGuard, Reentry, testing::use_tokio_clock};
use rlock_testkit::{Proxy, RedisServer, eventually, within};

use super::cut::{Cut, When};
use crate::{
    common::{LONG, assert_soon_waits, builder, only_tokens_are_left},
    leases::clock::HOUR,
};

/// More polls than any call takes.
const MOST: usize = 60;

pub(crate) struct Place {
    /// The server, with a proxy between it and the client under test.
    server: Option<(RedisServer, Proxy)>,
    pub(crate) url: String,
    /// The client whose calls are cancelled.
    pub(crate) client: LockClient,
    pub(crate) other: LockClient,
    keys: Cell<u32>,
}

impl Place {
    /// Returns a place with the embedded store, which runs by the clock of the runtime.
    pub(crate) async fn memory(name: &str, reentry: Reentry) -> Self {
        let url = format!("memory:cancellation-{name}");
        Self::new(None, url.clone(), &url, reentry).await
    }

    pub(crate) async fn server(url: fn(&str) -> String) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        let (url, direct) = (url(&proxy.url()), server.url());
        Self::new(Some((server, proxy)), url, &direct, Reentry::Counted).await
    }

    async fn new(
        server: Option<(RedisServer, Proxy)>,
        url: String,
        direct: &str,
        reentry: Reentry,
    ) -> Self {
        Self {
            client: connect(&url, reentry).await,
            other: connect(direct, reentry).await,
            server,
            url,
            keys: Cell::new(0),
        }
    }

    /// Returns how many connections the server has.
    pub(crate) async fn connections(&self) -> usize {
        let (server, _) = self.server.as_ref().expect("there is a server");
        server.client_count().await
    }

    /// Runs a case once for every cut, until it completes before the cut. Checks that at least this
    /// many cuts took effect.
    pub(crate) async fn everywhere(
        &self,
        what: &str,
        least: usize,
        case: impl AsyncFn(&str, Cut<'_>) -> bool,
    ) {
        let proxy = self.server.as_ref().map(|(_, proxy)| proxy);
        let mut cuts = 0;
        for polls in 0..=MOST {
            assert!(polls < MOST, "{what} does not end");
            let mut moments = vec![When::RightAfter, When::Woken];
            if proxy.is_some() {
                moments.extend([When::BeforeTheServer, When::BeforeTheReply]);
            }
            let mut ended = false;
            for &when in &moments[..if polls == 0 { 1 } else { moments.len() }] {
                let cut = Cut { polls, when, proxy };
                let point = format!("{what} ({}), cut after {polls} polls, {when:?}", self.url);
                self.keys.set(self.keys.get() + 1);
                let key = format!("k-{}", self.keys.get());
                let is_cut = within(LONG * 2, &point, case(&key, cut)).await;
                self.assert_nothing_left(&key, &point).await;
                cuts += usize::from(is_cut);
                ended |= !is_cut && when == When::RightAfter;
            }
            if ended {
                break;
            }
        }
        // With a slow server, a call may seem to make no progress early.
        assert!(cuts >= least, "{what} ({}): {cuts} cuts", self.url);
    }

    pub(crate) async fn hold(&self, client: &LockClient, key: &str) -> LockGuard {
        client.lock(key).acquire().await.expect("free")
    }

    /// Checks that the hold has one entry, as before the cut, and releases it.
    pub(crate) async fn assert_held_and_release(&self, guard: LockGuard) {
        eventually(LONG, "the hold has one entry", async || {
            let info = self.other.inspect(guard.key()).await.expect("a reply");
            info.is_some_and(|info| info.owner == guard.owner() && info.depth == 1)
        })
        .await;
        assert!(guard.is_valid());
        assert_eq!(guard.depth(), 1);
        guard.release().await.expect("held");
    }

    /// Waits until this many owners are queued for the lock.
    pub(crate) async fn assert_soon_queued(&self, key: &str, count: usize) {
        assert_soon_waits(&self.other, key, count).await;
    }

    /// Checks that there is no lock and no place in the queue, and that both clients can acquire.
    pub(crate) async fn assert_nothing_left(&self, key: &str, point: &str) {
        if let Some((server, _)) = &self.server {
            eventually(LONG, point, async || only_tokens_are_left(server).await).await;
        }
        for client in [&self.other, &self.client] {
            let guard = within(LONG, point, client.lock(key).acquire()).await;
            let guard = guard.unwrap_or_else(|error| panic!("{point}: {error}"));
            // A caller that is gone must not have a place in the queue.
            self.assert_soon_queued(key, 0).await;
            let released = guard.release().await;
            released.unwrap_or_else(|error| panic!("{point}: {error}"));
        }
    }
}

/// Connects a client that repeats no request, because the proxy loses none. Its locks neither expire nor are renewed.
async fn connect(url: &str, reentry: Reentry) -> LockClient {
    let mut builder = builder()
        .default_lease(HOUR)
        .default_wait(LONG)
        .response_timeout(LONG)
        .reentry(reentry);
    if url.starts_with("memory:") {
        builder = use_tokio_clock(builder);
    }
    builder.connect(url).await.expect("the store is there")
}
