//! Tests connections against servers and Sentinels that reply as a test says.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use rlock_proto::{owner::OwnerId, store::SetCountRequest};
use uuid::Uuid;

use super::{
    fake::{FakeSentinels, FakeServer, REFUSED},
    *,
};
use crate::{options::Replicas, store::endpoint::Endpoint};

const SILENCE: Duration = Duration::from_millis(200);
/// After this time, a test hangs.
const LONG: Duration = Duration::from_secs(60);

/// Makes the store of this URL.
fn store(url: &str, callers: Option<&Handle>) -> Arc<RedisStore> {
    let listener: Listener = Arc::new(drop);
    store_with(url, callers, &listener)
}

fn store_with(url: &str, callers: Option<&Handle>, listener: &Listener) -> Arc<RedisStore> {
    store_of(url, callers, listener, None)
}

fn store_of(
    url: &str,
    callers: Option<&Handle>,
    listener: &Listener,
    replicas: Option<Replicas>,
) -> Arc<RedisStore> {
    let Ok(Endpoint::Server(endpoint)) = Endpoint::parse(url) else {
        panic!("a server");
    };
    let options = StoreOptions {
        connect_timeout: LONG,
        replicas,
        ..StoreOptions::for_tests(Uuid::nil())
    };
    RedisStore::of(endpoint, &options, listener, callers)
}

/// Starts a server that refuses all commands.
async fn server() -> FakeServer {
    FakeServer::start(|_| REFUSED.to_owned()).await
}

/// A request that waited for its connection is sent late.
#[tokio::test]
async fn a_connection_is_replaced_only_after_it_was_silent_for_long_enough() {
    let is_silent = Arc::<AtomicBool>::default();
    let silent = Arc::clone(&is_silent);
    let server = FakeServer::start(move |_| {
        let reply = Some(REFUSED).filter(|_| !silent.load(Ordering::SeqCst));
        reply.unwrap_or_default().to_owned()
    });
    let port = server.await.port;
    let store = store(&format!("redis://127.0.0.1:{port}?protocol=resp2"), None);
    let link = &store.background;
    link.connect().await.expect("it listens");
    is_silent.store(true, Ordering::SeqCst);
    let connection = link.connection().await.expect("connected");
    let exchange = async |left| {
        let deadline = Instant::now() + left;
        let send = SendOptions::new(SILENCE * 9).silence(SILENCE);
        let reply = store.exchange(Operation::Ping, link, &connection, deadline, send);
        reply.await.expect_err("it is silent");
    };
    exchange(SILENCE / 2).await;
    assert!(link.is_up(), "it was silent for half the time");
    exchange(SILENCE * 2).await;
    assert!(!link.is_up());
}

#[tokio::test]
async fn a_connection_that_fails_before_it_is_kept_up_is_replaced_without_another_check() {
    let server = server().await;
    let url = format!("redis://127.0.0.1:{}?protocol=resp2", server.port);
    let store = store(&url, None);
    let link = &store.background;
    link.connect().await.expect("it listens");
    let (first, checks) = (link.present().expect("connected"), server.count("EVALSHA"));
    assert!(checks > 0, "it asks for permissions");
    link.give_up(first.epoch);
    let kept_up = tokio::spawn(Arc::clone(link).keep_up());
    let second = link.next_connection(first.epoch).await;
    // A check would have been sent before, over the same connection.
    let ping = second.send(Operation::Ping, false, false).await;
    ping.expect_err("it refuses all");
    assert_eq!(server.count("EVALSHA"), checks);
    kept_up.abort();
}

/// A report makes the client renew its holds and repeat its acquires at once.
#[tokio::test]
async fn the_first_connection_for_callers_reports_no_missed_changes_and_the_next_one_does() {
    let server = server().await;
    let url = format!("redis://127.0.0.1:{}?protocol=resp2", server.port);
    let (report, reports) = mpsc::channel();
    let listener: Listener = Arc::new(move |notification| {
        if let Notification::SomeChanged(_) = notification {
            let _ = report.send(());
        }
    });
    let store = store_with(&url, Some(&Handle::current()), &listener);
    store.background.connect().await.expect("it listens");
    let link = store.links().next().expect("the callers'");
    // On this runtime, the task that connects reports before this one goes on.
    let first = link.next_connection(0).await;
    assert_eq!(reports.try_iter().count(), 0);
    link.give_up(first.epoch);
    link.next_connection(first.epoch).await;
    assert_eq!(reports.try_iter().count(), 1);
    // Calls may have waited for the first connection of a client that connects by itself.
    let lazy = store_with(&url, None, &listener).background.clone();
    let kept_up = tokio::spawn(Arc::clone(&lazy).keep_up());
    lazy.next_connection(0).await;
    assert_eq!(reports.try_iter().count(), 1);
    kept_up.abort();
}

#[tokio::test]
async fn an_isolated_sentinel_does_not_lead_back_to_a_former_master() {
    let (sentinels, url) = FakeSentinels::start().await;
    let address = &store(&url, None).background.address;
    let (former, master) = (1001, 1002);
    let port = async || {
        let server = address
            .server(LONG)
            .await
            .map_err(|error| error.to_string())?;
        let shown = server.info.addr().to_string();
        Ok::<_, String>(shown.rsplit(':').next().and_then(|port| port.parse().ok()))
    };
    let report = |epoch, port| Some((epoch, port, ""));
    sentinels.reply([report(5, master); 3]);
    assert_eq!(port().await, Ok(Some(master)));
    let known = address.promotion();
    // An earlier promotion, and the same one of a Sentinel that was led to another server by hand.
    for epoch in [4, 5] {
        sentinels.reply([report(epoch, former), None, None]);
        let error = port().await.expect_err("the others know more");
        assert!(error.contains("no majority of the Sentinels"), "{error}");
        assert_eq!(address.promotion(), known);
    }
    sentinels.reply([report(4, former), report(4, former), report(5, master)]);
    assert_eq!(port().await, Ok(Some(master)));
    assert_eq!(address.promotion(), known);
    // The Sentinels were set up again, and count from 1.
    sentinels.reply([report(1, former), report(1, former), None]);
    assert_eq!(port().await, Ok(Some(former)));
    assert_ne!(address.promotion(), known);
}

/// No connection breaks: the client hears of the other master.
#[tokio::test]
async fn connections_follow_sentinels_that_count_promotions_from_0_again() {
    let (former, master) = (server().await, server().await);
    let (sentinels, url) = FakeSentinels::start().await;
    let report = |epoch, server: &FakeServer| Some((epoch, server.port, ""));
    sentinels.reply([report(5, &former); 3]);
    let store = store(&url, Some(&Handle::current()));
    let background = tokio::spawn(Arc::clone(&store).background());
    Arc::clone(&store).connect().await.expect("a master");
    // Set up again by hand with one more server, once behind a failover and once instead of it.
    for (epoch, server) in [(1, &master), (1, &former), (0, &master)] {
        sentinels.reply([report(epoch, server), report(epoch, server), None]);
        let promotion = store.background.address.promotion();
        for link in store.links() {
            let followed = async {
                let mut last = 0;
                loop {
                    let connection = link.next_connection(last).await;
                    if connection
                        .server
                        .to_string()
                        .ends_with(&format!(":{}", server.port))
                    {
                        return connection.promotion;
                    }
                    last = connection.epoch;
                }
            };
            let followed = tokio::time::timeout(LONG, followed).await;
            assert!(followed.expect("it stays") > promotion);
        }
    }
    background.abort();
}

/// The clock is stopped, so nothing can be late.
#[tokio::test]
async fn acquires_that_may_grant_a_lock_are_held_back_while_a_replica_is_promoted() {
    let (former, master) = (server().await, server().await);
    let (sentinels, url) = FakeSentinels::start().await;
    sentinels.reply([Some((1, former.port, "")); 3]);
    let store = store(&url, None);
    let background = tokio::spawn(Arc::clone(&store).background());
    Arc::clone(&store).connect().await.expect("a master");
    // One Sentinel promotes, and two do not know of it. The client may only ask.
    let (idle, promoting) = (
        Some((1, former.port, "")),
        Some((1, former.port, "wait_promotion")),
    );
    sentinels.reply([idle, promoting, idle]);
    let address = &store.background.address;
    let begun = async {
        while address.next_promotion_by().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, begun).await.expect("a reply");
    let (resume, stopped) = mpsc::channel::<()>();
    // The paused clock of Tokio does not advance while a blocking task runs.
    tokio::task::spawn_blocking(move || stopped.recv());
    tokio::time::pause();
    assert_ne!(address.next_promotion_by(), None);

    let owner = OwnerId::new(Uuid::nil(), 1, LockMode::Exclusive);
    let key = Key::parse("k").expect("valid");
    let acquire = AcquireRequest {
        claims: rlock_proto::few::one(Claim {
            key: key.clone(),
            owner,
        }),
        lease: LONG,
        waits: false,
    };
    let count = Change::SetCount(SetCountRequest {
        key,
        owner,
        count: 2,
        lease: LONG,
    });
    let (to_acquire, to_count) = (Arc::clone(&store), Arc::clone(&store));
    let acquire = async move {
        let acquired = to_acquire.acquire(&acquire, SendOptions::new(LONG)).await;
        acquired.map(drop)
    };
    let count = async move {
        let applied = to_count.apply(&count, SendOptions::new(LONG)).await;
        applied.map(drop)
    };
    // The client has asked for its permissions by scripts.
    let checks = former.count("EVALSHA");
    let (held_back, told) = (tokio::spawn(acquire), tokio::spawn(count));
    // The server reads it behind everything that was sent before.
    store.ping(LONG).await.expect("it replies");
    assert_eq!(former.count("PING"), 1);
    let requests = former.count("EVALSHA");
    assert_eq!(requests, checks + 1, "a count grants nothing");
    assert!(!held_back.is_finished(), "the acquire waits");

    sentinels.reply([Some((2, master.port, "")); 3]);
    address.server(LONG).await.expect("a master");
    tokio::time::resume();
    drop(resume);
    for request in [held_back, told] {
        let refused = request.await.expect("no panic").expect_err("refused");
        assert!(refused.to_string().contains("NOPERM"), "{refused}");
    }
    let counts = (former.count("EVALSHA"), master.count("EVALSHA"));
    assert_eq!(counts, (requests, 1));
    background.abort();
}

/// The client hears of its successor while the replica confirms.
#[tokio::test]
async fn a_former_master_does_not_confirm_that_a_replica_has_a_lock() {
    let (sentinels, url) = FakeSentinels::start().await;
    let of_holder = |holds: bool| {
        move |words: &[String]| match words[0].as_str() {
            "PEXPIRE" | "HEXISTS" => format!(":{}\r\n", u8::from(holds)),
            "WAIT" => ":1\r\n".to_owned(),
            _ => REFUSED.to_owned(),
        }
    };
    let master = FakeServer::start(of_holder(false)).await.port;
    let address = Arc::<OnceLock<Address>>::default();
    let (known, reported) = (Arc::clone(&address), sentinels.clone());
    let former = FakeServer::start(move |words| {
        if words[0] == "WAIT" {
            reported.reply([Some((2, master, "")); 3]);
            let successor = sentinel::Master {
                epoch: 2,
                host: "127.0.0.1".to_owned(),
                port: master,
            };
            let named = sentinel::Named {
                master: successor,
                is_promoting: false,
            };
            known.wait().learn(&named, None);
        }
        of_holder(true)(words)
    });
    sentinels.reply([Some((1, former.await.port, "")); 3]);
    let (least, within) = (1, LONG);
    let listener: Listener = Arc::new(drop);
    let store = store_of(&url, None, &listener, Some(Replicas { least, within }));
    let background = tokio::spawn(Arc::clone(&store).background());
    Arc::clone(&store).connect().await.expect("a master");
    assert!(address.set(store.background.address.clone()).is_ok());
    let claim = Claim {
        key: Key::parse("k").expect("valid"),
        owner: OwnerId::new(Uuid::nil(), 1, LockMode::Exclusive),
    };
    let outcome = store.replicate(&[claim], LONG).await;
    let error = outcome.expect_err("the new master lacks it").to_string();
    assert!(
        error.contains("the master does not have the lock"),
        "{error}"
    );
    background.abort();
}
