//! Half-open connections: the other end is gone without a FIN or RST, and new connections work.

use futures_util::future::join_all;
use rlock_core::LockClient;
use rlock_testkit::{Proxy, RedisServer};

use crate::common::{
    LASTING, LONG, acquiring, assert_soon_counted, assert_soon_free, assert_soon_queued, client,
    count, hold, its_turn, resp2_client,
};
use crate::leases::clock::HOUR;

struct Place {
    server: RedisServer,
    proxy: Proxy,
    client: LockClient,
}

impl Place {
    async fn new(protocol: &str) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        let url = format!("{}?protocol={protocol}", proxy.url());
        let client = crate::common::connect(&url).await;
        Self {
            server,
            proxy,
            client,
        }
    }
}

const PROTOCOLS: [&str; 2] = ["resp3", "resp2"];

#[tokio::test]
async fn a_call_without_a_reply_is_repeated_over_another_connection() {
    let case = async |protocol| {
        let place = Place::new(protocol).await;
        place.proxy.half_open();
        let lock = place.client.lock("k").lease(HOUR).wait(LONG);
        let guard = lock.acquire().await.expect("granted after all");
        place.proxy.half_open();
        let nested = guard.scope(lock.acquire()).await.expect("enters");
        assert_soon_counted(&place.server, &guard, 2).await;
        place.proxy.half_open();
        drop(nested);
        assert_soon_counted(&place.server, &guard, 1).await;
        place.proxy.half_open();
        drop(guard);
        assert_soon_free(&place.server, "k").await;
    };
    join_all(PROTOCOLS.map(case)).await;
}

/// The notification goes to the half-open connection.
#[tokio::test]
async fn a_waiter_that_cannot_be_notified_asks_by_its_timer() {
    let case = async |protocol| {
        let place = Place::new(protocol).await;
        let other = client(&place.server).await;
        let held = hold(&other, "k").await;
        let waiting = acquiring(place.client.lock("k").lease(LASTING).wait(LONG));
        assert_soon_queued(&place.server, "k", 1).await;
        place.proxy.half_open();
        held.release().await.expect("held");
        let guard = its_turn(waiting).await;
        assert_eq!(count(&place.server, &guard).await, Some(1), "{protocol}");
    };
    join_all(PROTOCOLS.map(case)).await;
}

/// An idle connection has no unacknowledged data, so the system has to probe it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn idle_connections_use_tcp_keepalive_and_unacknowledged_data_times_out() {
    use std::{fs, net::SocketAddr, time::Duration};

    use rustix::{
        fd::OwnedFd,
        net::{getpeername, sockopt},
        process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
    };

    /// Copies the sockets of this process that are connected to `address`.
    fn sockets_to(address: &str) -> Vec<OwnedFd> {
        let address: SocketAddr = address.parse().expect("an address");
        let own = pidfd_open(getpid(), PidfdFlags::empty()).expect("our own process");
        let open = fs::read_dir("/proc/self/fd").expect("our own files");
        open.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|number| pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).ok())
            .filter(|socket| {
                let peer = getpeername(socket).ok().flatten();
                peer.and_then(|peer| SocketAddr::try_from(peer).ok()) == Some(address)
            })
            .collect()
    }

    let server = RedisServer::start();
    // One for requests, one for messages, one on this runtime.
    let _older = resp2_client(&server).await;
    let _newer = client(&server).await;
    let sockets = sockets_to(&server.address());
    assert!(sockets.len() >= 4, "{sockets:?}");
    for socket in sockets {
        assert!(sockopt::socket_keepalive(&socket).expect("known"));
        let idle = sockopt::tcp_keepidle(&socket).expect("known");
        let every = sockopt::tcp_keepintvl(&socket).expect("known");
        assert!(idle <= Duration::from_secs(30), "{idle:?}");
        assert!(every <= Duration::from_secs(30), "{every:?}");
        let unanswered = sockopt::tcp_user_timeout(&socket).expect("known");
        assert!((1..=30_000).contains(&unanswered), "{unanswered} ms");
    }
}
