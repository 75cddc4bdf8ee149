//! An outage that is shorter than a lease is survived, which needs a quiet machine.

use std::time::Duration;

use rlock_testkit::{Proxy, RedisServer};

use crate::common::{connect, name};

/// The last timed attempt starts at five sixths of the lease. After it, only a restored connection
/// triggers a renewal.
#[tokio::test]
#[ignore = "scripts/test-all timing"]
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
        survives(Proxy::black_hole_replies),
        survives(Proxy::cut_off),
    );
}
