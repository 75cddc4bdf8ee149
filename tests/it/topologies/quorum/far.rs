//! Many simultaneous requests, while one server always replies later than the others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::{join_all, try_join_all};
use rlock_core::{LockClient, LockError, LockGuard};
use rlock_testkit::{
    ClientCommand, Proxy, RedisServer, eventually,
    simultaneous::{acquire_all, release_all},
};

use super::five::{SOON, Servers};
use crate::common::{LASTING, LONG, ms, name, only_tokens_are_left, timed};

/// The delay of the last server, which is never among the first two.
const LATE: Duration = Duration::from_millis(150);

struct Far {
    three: Servers,
    _proxy: Proxy,
    client: LockClient,
}

impl Far {
    /// Returns a client with a slow last server.
    async fn start() -> Self {
        let rules = "on >secret ~lock:* &lock:* +@all -client";
        let servers: Vec<_> = (0..3)
            .map(|_| RedisServer::builder().acl_user("blind", rules).start())
            .collect();
        let proxy = Proxy::in_front_of(&servers[2]);
        proxy.delay_requests(LATE);
        let mut urls: Vec<_> = servers
            .iter()
            .map(|server| server.url_as("blind", "secret"))
            .collect();
        urls[2] = urls[2].replace(&servers[2].port().to_string(), &proxy.port().to_string());
        let client = LockClient::quorum(urls).await.expect("all servers are up");
        // The last server is connected as well.
        eventually(LONG, "all are connected", async || {
            servers[2].client_count().await > 0
        })
        .await;
        tokio::time::sleep(LATE * 4).await;
        Self {
            three: Servers(servers),
            _proxy: proxy,
            client,
        }
    }
}

fn keys() -> Vec<String> {
    (0..8).map(|n| format!("k{n}")).collect()
}

/// Nothing is in doubt: the servers reply that another owner has the lock.
#[tokio::test]
async fn locks_that_others_have_since_are_reported_as_lost_by_releases_of_several() {
    let far = Far::start().await;
    let other = far.three.client().await;
    let keys = keys();
    let guards = acquire_all(&far.client, &keys).await;
    tokio::time::sleep(LATE * 2).await;
    for server in &far.three.0 {
        for key in &keys {
            // The slow server may still be granting it.
            eventually(LONG, "the lock is there to be deleted", async || {
                server.del(&name(key)).await
            })
            .await;
        }
    }
    let taken = acquire_all(&other, &keys).await;
    let (released, took) = timed(join_all(guards.into_iter().map(LockGuard::release))).await;
    for released in released {
        assert!(
            matches!(released, Err(LockError::Lost { .. })),
            "{released:?}"
        );
    }
    assert!(took < SOON, "{took:?}");
    drop(taken);
}

/// A caller whose wait ends leaves the queue once.
#[tokio::test]
async fn a_call_that_gives_up_among_many_requests_reports_it_once() {
    let far = Far::start().await;
    let held = far.three.client().await;
    let held = held.lock("held").lease(LASTING).acquire().await;
    let held = held.expect("free");
    let running = Arc::new(AtomicBool::new(true));
    let company: Vec<_> = keys()
        .into_iter()
        .map(|key| {
            let (lock, running) = (far.client.lock(&key), Arc::clone(&running));
            tokio::spawn(async move {
                while running.load(Ordering::Relaxed) {
                    lock.acquire()
                        .await
                        .expect("free")
                        .release()
                        .await
                        .expect("held");
                }
            })
        })
        .collect();
    let waited = far.client.lock("held").wait(ms(300)).acquire().await;
    assert!(
        matches!(waited, Err(LockError::Timeout { .. })),
        "{waited:?}"
    );
    let mut watch = far.three.0[0].watch_commands().await;
    tokio::time::sleep(ms(500)).await;
    watch.clear().await;
    tokio::time::sleep(ms(2000)).await;
    let held_name = name("held");
    let of_it = |command: &&ClientCommand| {
        command.is("EVALSHA") && command.words.iter().any(|word| word.contains(&held_name))
    };
    let late = watch.seen().await.iter().filter(of_it).count();
    running.store(false, Ordering::Relaxed);
    try_join_all(company).await.expect("no panic");
    assert!(late <= 1, "{late} requests long after it left");
    held.release().await.expect("held");
}

/// Each server gets the requests that it missed, whichever comes back first.
#[tokio::test]
async fn a_server_that_stays_away_does_not_keep_others_from_getting_what_they_missed() {
    let five = Servers::five();
    let proxies = [0, 1, 2, 3, 4].map(|n| Proxy::in_front_of(&five.0[n]));
    let client = LockClient::quorum(proxies.iter().map(Proxy::url)).await;
    let client = client.expect("all servers are up");
    let guards = acquire_all(&client, &keys()).await;
    tokio::time::sleep(ms(300)).await;
    proxies[1].refuse();
    for proxy in &proxies[1..3] {
        proxy.drop_requests_if(1, |request| request.is("EVALSHA"));
    }
    release_all(guards).await;
    eventually(LONG, "both missed it", async || {
        proxies[1].requests_lost() + proxies[2].requests_lost() == 2
    })
    .await;
    eventually(SOON * 4, "one is back", async || {
        only_tokens_are_left(&five.0[2]).await
    })
    .await;
    proxies[1].pass();
}

/// A majority still has the lock. The slow server replies after the others, which disagree.
#[tokio::test]
async fn a_hold_that_a_near_server_lost_is_kept_by_the_others_of_which_one_is_far() {
    let far = Far::start().await;
    let guard = far.client.lock("k").lease(ms(3000)).acquire().await;
    let guard = guard.expect("free");
    tokio::time::sleep(LATE * 2).await;
    assert!(far.three.0[0].del(&name("k")).await);
    tokio::time::sleep(ms(4500)).await;
    assert!(guard.is_valid(), "two of three have it");
    guard.release().await.expect("held");
}
