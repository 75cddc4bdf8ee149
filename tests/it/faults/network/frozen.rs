//! Servers and networks that are paused for a while, and renewals that run late.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::{LockClient, LostCause};
use rlock_testkit::{Proxy, RedisServer};

use crate::common::{LASTING, LONG, assert_lost, cause_of, client, connect, count, ms, name};

/// Ways to pause a server.
#[derive(Debug, Clone, Copy)]
enum Stop {
    /// SIGSTOP and SIGCONT.
    Process,
    /// `CLIENT PAUSE`.
    Clients,
    /// `DEBUG SLEEP`.
    Sleep,
    /// A script that does not end.
    Script,
}

const STOPS: [Stop; 4] = [Stop::Process, Stop::Clients, Stop::Sleep, Stop::Script];

impl Stop {
    /// Pauses the server, and returns when it goes on.
    async fn strike(self, server: &RedisServer, time: Duration) {
        match self {
            Self::Process => {
                server.pause();
                tokio::time::sleep(time).await;
                server.resume();
            }
            Self::Clients => {
                server.pause_clients(time).await;
                tokio::time::sleep(time).await;
            }
            Self::Sleep => server.sleep(time).await,
            Self::Script => server.run_script_for(time).await,
        }
    }
}

async fn a_place(stop: Stop) -> (RedisServer, LockClient) {
    let server = match stop {
        Stop::Sleep => RedisServer::builder().debug_commands().start(),
        _ => RedisServer::start(),
    };
    let client = client(&server).await;
    (server, client)
}

#[tokio::test]
async fn a_server_that_is_paused_for_less_than_a_lease_keeps_its_locks() {
    let case = async |stop: Stop| {
        let (server, client) = a_place(stop).await;
        let guard = client.lock("k").lease(ms(3000)).acquire().await;
        let guard = guard.expect("free");
        stop.strike(&server, ms(1400)).await;
        assert!(guard.is_valid(), "{stop:?}");
        tokio::time::sleep(ms(3000)).await;
        assert!(guard.is_valid(), "{stop:?}: renewed in time");
        assert_eq!(count(&server, &guard).await, Some(1), "{stop:?}");
        guard.release().await.expect("held");
    };
    join_all(STOPS.map(case)).await;
}

/// The renewals are sent in time. Their late replies do not bring the lock back.
#[tokio::test]
async fn a_renewal_that_runs_after_the_lease_does_not_bring_the_lock_back() {
    const LEASE: Duration = Duration::from_millis(900);
    let case = async |stop: Stop| {
        let (server, client) = a_place(stop).await;
        let other = connect(&server.url()).await;
        let guard = client.lock("k").lease(LEASE).acquire().await;
        let guard = guard.expect("free");
        let is_lost = async {
            assert_lost(&guard, LEASE + ms(1000), LostCause::Expired).await;
        };
        tokio::join!(stop.strike(&server, LEASE * 3), is_lost);
        let next = other.lock("k").lease(LASTING).wait(LONG).acquire().await;
        let next = next.expect("free");
        assert!(next.fencing_token() > guard.fencing_token(), "{stop:?}");
        tokio::time::sleep(ms(300)).await;
        assert!(!guard.is_valid(), "{stop:?}");
        let outcome = guard.release().await;
        assert_eq!(cause_of(outcome), Some(LostCause::Expired), "{stop:?}");
        assert_eq!(count(&server, &next).await, Some(1), "{stop:?}");
        next.release().await.expect("held");
    };
    join_all(STOPS.map(case)).await;
}

/// The last timed attempt starts at five sixths of the lease. After it, only a restored connection
/// triggers a renewal.
#[tokio::test]
async fn an_outage_that_ends_at_nine_tenths_of_a_lease_is_survived() {
    const LEASE: Duration = Duration::from_secs(8);
    let survives = async |begin: fn(&Proxy)| {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        let client = connect(&proxy.url()).await;
        let guard = client.lock("k").lease(LEASE).acquire().await;
        let guard = guard.expect("free");
        begin(&proxy);
        // Until a tenth of the lease is left.
        tokio::time::sleep(guard.valid_for().saturating_sub(LEASE / 10)).await;
        assert!(guard.is_valid(), "the lease has not ended");
        proxy.pass();
        tokio::time::sleep(LEASE / 2).await;
        assert!(guard.is_valid(), "renewed in the last tenth");
        assert!(server.pttl(&name("k")).await > 0);
        guard.release().await.expect("held");
    };
    tokio::join!(
        survives(Proxy::black_hole),
        survives(Proxy::black_hole_requests),
        survives(Proxy::black_hole_replies),
        survives(Proxy::hold),
        survives(|proxy| {
            proxy.refuse();
            proxy.reset();
        }),
    );
}

/// The connection stays open, so no event reports the delay or its end.
#[tokio::test]
async fn requests_that_are_late_by_most_of_a_lease_are_renewals_all_the_same() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let guard = client.lock("k").lease(ms(3000)).acquire().await;
    let guard = guard.expect("free");
    proxy.delay_requests(ms(1200));
    tokio::time::sleep(ms(6500)).await;
    assert!(guard.is_valid());
    proxy.pass();
    guard.release().await.expect("held");
}
