//! The log lines of outages and of calls that disagree: each is logged once.

use futures_util::future::join_all;
use rlock_testkit::{Proxy, RedisServer, eventually, within};

use crate::common::{
    LONG, builder, connect,
    log::{keep_log, logged_with},
    ms,
};

/// Returns the lines at level INFO about the server at this address.
fn infos(address: &str) -> Vec<String> {
    logged_with(&[address, " INFO "])
}

#[tokio::test]
async fn calls_that_disagree_on_the_number_of_permits_log_each_pair_of_numbers_once_for_each_key() {
    keep_log();
    let server = RedisServer::start();
    for (store, url) in [("memory", "memory:disputed"), ("server", &server.url())] {
        let (one, other) = (connect(url).await, connect(url).await);
        for key in [format!("disputed-{store}-1"), format!("disputed-{store}-2")] {
            let lines = || logged_with(&["calls disagree on the number of permits", &key]);
            let is_told = |line: &str, numbers| line.contains("WARN") && line.contains(numbers);
            let held = one.lock(&key).permits(3).acquire().await.expect("free");
            for _ in 0..3 {
                let refused = other.lock(&key).permits(1).try_acquire().await;
                assert!(refused.expect("a reply").is_none());
            }
            assert!(matches!(&lines()[..], [line] if is_told(line, "mine=1 theirs=3")));
            // A call that enters logs the warning, too.
            for _ in 0..3 {
                let entered = other.lock(&key).permits(4).acquire().await;
                entered.expect("one of four").release().await.expect("held");
            }
            assert!(matches!(&lines()[..], [_, line] if is_told(line, "mine=4 theirs=3")));
            held.release().await.expect("held");
        }
    }
}

/// Asserts that an outage is logged once, and so is its end.
async fn assert_logged_once(proxy: &Proxy, outage: &str) {
    eventually(LONG, "its end is logged", async || {
        infos(&proxy.address()).len() > 1
    })
    .await;
    tokio::time::sleep(ms(500)).await;
    let infos = infos(&proxy.address());
    assert_eq!(infos.len(), 2, "{infos:#?}");
    assert!(infos[0].contains(outage), "{infos:#?}");
    assert!(infos[1].contains("connected again"), "{infos:#?}");
    assert!(infos[1].contains("after="), "{infos:#?}");
}

#[tokio::test]
async fn an_outage_that_ends_before_the_leases_is_logged_at_its_begin_and_end() {
    const LOCKS: usize = 200;
    keep_log();
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let lock = |n| client.lock(format!("outage-{n}-")).lease(ms(18_000));
    let guards = join_all((0..LOCKS).map(|n| lock(n).acquire())).await;
    assert_eq!(infos(&proxy.address()), Vec::<String>::new());
    proxy.refuse();
    proxy.reset();
    let of_locks = |text| logged_with(&["key=outage-", text]);
    eventually(LONG, "a renewal fails", async || {
        !of_locks("renewal failed").is_empty()
    })
    .await;
    assert!(!infos(&proxy.address()).is_empty(), "its start is logged");
    proxy.pass();
    assert_logged_once(&proxy, "connection lost").await;
    let failed = of_locks("renewal failed");
    let few = "one line for a message, not for each lock";
    assert!(failed.len() < LOCKS / 4, "{few}: {failed:#?}");
    for guard in guards {
        guard.expect("free").release().await.expect("held");
    }
    assert_eq!(of_locks("lock lost"), Vec::<String>::new());
}

/// A proxy closes idle connections.
#[tokio::test]
async fn an_idle_client_reconnects_without_a_log_line() {
    keep_log();
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    // A reset would also end an attempt to open the second connection.
    let client = builder().second_connection(false);
    let client = client.connect(&proxy.url()).await.expect("it is up");
    let connected = || logged_with(&[&proxy.address(), ": connected "]).len();
    let failed = || logged_with(&[&proxy.address(), "connecting failed"]);
    for n in 1..=3 {
        let before = connected();
        proxy.reset();
        eventually(LONG, "it connects again", async || connected() > before).await;
        // An attempt that times out, as on a busy machine, begins an outage, which is logged.
        if failed().is_empty() {
            let infos = infos(&proxy.address());
            assert_eq!(infos, Vec::<String>::new(), "reset {n}");
        }
    }
    let guard = client.lock("k").wait(LONG).acquire().await;
    guard.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn a_silent_server_is_logged_once_and_so_is_its_return() {
    keep_log();
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    // The renewal after ten seconds has no reply.
    let guard = client.lock("s").lease(ms(30_000)).acquire().await;
    let guard = guard.expect("free");
    proxy.hold();
    eventually(LONG, "its start is logged", async || {
        !infos(&proxy.address()).is_empty()
    })
    .await;
    proxy.pass();
    assert_logged_once(&proxy, "the server is silent").await;
    let released = within(LONG, "the release", guard.release()).await;
    released.expect("held");
}
