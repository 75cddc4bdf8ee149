//! Holders of locks, lists of held locks, and revocation.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError, LockGuard, LostCause, Token, inspect::LockInfo};
use rlock_testkit::{Place, Topology, eventually, within};

use super::{LONG, owner};
use crate::common::{acquiring, cause_of, its_turn};

async fn holder(client: &LockClient, key: &str) -> LockInfo {
    let info = client.inspect(key).await.expect("a reply");
    info.expect("held")
}

/// Inspects the lock until its holder has answered in time.
pub(crate) async fn answered(client: &LockClient, key: &str) -> LockInfo {
    loop {
        let info = holder(client, key).await;
        if info.holder.is_some() {
            return info;
        }
    }
}

/// Returns the locks, and the number of clients without a reply.
async fn listed(client: &LockClient, pattern: &str, scan: bool) -> (Vec<LockInfo>, usize) {
    let mut list = client.list(pattern).scan(scan);
    let mut found = Vec::new();
    while let Some(info) = list.try_next().await.expect("a reply") {
        found.push(info);
    }
    (found, list.missed())
}

fn keys(found: &[LockInfo]) -> BTreeSet<&str> {
    found.iter().map(|info| info.key.as_str()).collect()
}

pub(crate) async fn the_holder_replies_with_its_service_trace_and_waiters(place: Place) {
    let trace = || Some("4bf92f35\u{1b}[31m".to_owned());
    let one = place.client_of(
        LockClient::builder()
            .service("billing", "1.4.2")
            .trace_id(trace),
    );
    let (one, other) = (one.await, place.client().await);
    let lock = one.lock("order:42").label("order:<id>");
    let guard = lock.acquire().await.expect("free");
    let waiting = [(); 2].map(|()| acquiring(lock.clone()));
    let third = place.client_of(LockClient::builder().service("shipping", "2"));
    let third = acquiring(third.await.lock("order:42"));
    for client in [&other, &one] {
        eventually(LONG, "the waiters are seen", async || {
            let info = holder(client, "order:42").await;
            let waiters = info.holder.as_ref().map(|holder| holder.waiter_count);
            if let [waiter] = &info.waiters[..] {
                assert_eq!(info.queued_owners, [waiter.owner.as_str()]);
                let text = waiter.to_string();
                assert!(text.starts_with("`shipping` 2 on `"), "{text}");
            }
            waiters == Some(2) && info.waiters.len() == 1
        })
        .await;
        let info = answered(client, "order:42").await;
        assert_eq!(info.key, "order:42");
        assert_eq!(info.owner, guard.owner());
        assert_eq!(info.token(), Some(guard.token()));
        assert!(!info.retained);
        let holder = info.holder.expect("it replies");
        assert_eq!(holder.service.as_deref(), Some("billing"));
        assert_eq!(holder.version.as_deref(), Some("1.4.2"));
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.host.is_empty());
        assert_eq!(holder.label.as_deref(), Some("order:<id>"));
        assert_eq!(holder.function, None);
        assert_eq!(holder.trace_id.as_deref(), Some("4bf92f35\\u{1b}[31m"));
        let text = holder.to_string();
        assert!(text.starts_with("`billing` 1.4.2 on `"), "{text}");
        assert!(text.contains(", in `order:<id>`, for "), "{text}");
    }
    drop(guard);
    let waiting = waiting.into_iter().chain([third]);
    join_all(waiting.map(async |waiter| drop(its_turn(waiter).await))).await;
}

pub(crate) async fn all_locks_are_listed_with_their_holders(place: Place) {
    let clients = [
        place.client().await,
        place
            .client_of(LockClient::builder().service("billing", "1"))
            .await,
        place
            .client_of(LockClient::builder().inspectable(false))
            .await,
    ];
    // Enough for several parts of a list.
    let orders = (0..200).map(async |n| {
        let key = format!("order:{n}:{}", "x".repeat(200));
        clients[0].lock(key).acquire().await.expect("free")
    });
    let mut guards = join_all(orders).await;
    for (n, key) in [
        (1, "invoice:7"),
        (1, "{a}:order:\u{1}"),
        (2, "order:silent"),
    ] {
        guards.push(clients[n].lock(key).acquire().await.expect("free"));
    }
    let asking = place.client().await;

    // A list waits a second for each client. On a busy machine, clients that answer may take longer.
    eventually(LONG, "all but the silent client are listed", async || {
        let ((orders, missed), (found, _)) = tokio::join!(
            listed(&asking, "order:*", false),
            listed(&asking, "*", false),
        );
        let is_invoice = |info: &&LockInfo| info.key == "invoice:7";
        let holder = found
            .iter()
            .find(is_invoice)
            .and_then(|info| info.holder.clone());
        let is_described =
            holder.is_some_and(|holder| holder.service.as_deref() == Some("billing"));
        assert_eq!(orders.len(), keys(&orders).len(), "each once");
        let counts = (orders.len(), missed, keys(&found).len());
        counts == (200, 1, 202) && is_described && orders.iter().all(|info| info.holder.is_some())
    })
    .await;
    let ((silent, _), (all, _)) = tokio::join!(
        listed(&asking, "order:s?lent", true),
        listed(&asking, "*", true),
    );
    assert_eq!(keys(&silent), BTreeSet::from(["order:silent"]));
    assert_eq!(silent[0].owner, guards[202].owner());
    assert_eq!(silent[0].holder, None);
    assert_eq!((all.len(), keys(&all).len()), (203, 203));

    let waiter = acquiring(place.client().await.lock("invoice:7"));
    eventually(LONG, "the other process waits", async || {
        let (found, _) = listed(&asking, "*", false).await;
        let contended = found.iter().filter(|info| !info.queued_owners.is_empty());
        keys(&contended.cloned().collect::<Vec<_>>()) == BTreeSet::from(["invoice:7"])
    })
    .await;
    drop(guards);
    drop(its_turn(waiter).await);
}

/// Asks the holder until it answers. On a busy machine, it may take longer than the operator waits.
async fn ask(operator: &LockClient, key: &str) {
    eventually(LONG, "the holder answers", async || {
        operator.revoke(key).await.expect("a reply")
    })
    .await;
}

pub(crate) async fn a_holder_that_is_asked_stops_its_body_before_the_next_begins(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    assert!(!other.revoke("order:42").await.expect("a reply"));
    let lock = one.lock("order:42");
    let guard = lock.acquire().await.expect("free");
    let body = {
        let one = one.clone();
        tokio::spawn(async move { one.lock("order:43").run(std::future::pending::<()>()).await })
    };
    eventually(LONG, "the body runs", async || {
        other.inspect("order:43").await.expect("a reply").is_some()
    })
    .await;
    for key in ["order:42", "order:43"] {
        ask(&other, key).await;
    }
    let outcome = within(LONG, "the body stops", body).await;
    let cause = cause_of(outcome.expect("no panic"));
    assert_eq!(cause, Some(LostCause::Revoked));
    let released = other.inspect("order:43").await.expect("a reply");
    assert_eq!(released, None, "before the call returns");
    // The guard is lost at once, but its lock stays taken until the guard is dropped.
    ask(&other, "order:42").await;
    assert_eq!(guard.lost().await, LostCause::Revoked);
    assert_eq!(guard.valid_for(), Duration::ZERO);
    assert!(
        guard.scope(lock.acquire()).await.is_err(),
        "nothing enters a lost hold"
    );
    let owner = holder(&other, "order:42").await.owner;
    assert_eq!(owner, guard.owner());
    let token = guard.token();
    drop(guard);
    let next = other.lock("order:42").wait(LONG).acquire().await;
    let next = next.expect("free soon");
    assert!(next.token() > token);
}

/// Waits until the guard is lost. Its client may see that the lock has gone before it learns who took it.
pub(crate) async fn assert_taken_away(guard: &LockGuard) {
    let cause = within(LONG, "the loss is reported", guard.lost()).await;
    assert!(
        matches!(cause, LostCause::Revoked | LostCause::Removed),
        "{cause:?}"
    );
}

pub(crate) async fn a_lock_is_taken_from_the_hold_that_was_meant_only(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let any = "7".parse().expect("a token");
    assert!(!other.release_if("order:42", any).await.expect("a reply"));
    let guard = one.lock("order:42").acquire().await.expect("free");
    let token = guard.token();
    // If the holder answers too late, the store compares the tokens, and accepts larger ones of the same fence.
    for wrong in [1, token.as_u64() - 1, (1 << 53) - 1] {
        let wrong = Token::try_from(wrong).expect("a token");
        assert!(
            !other.release_if("order:42", wrong).await.expect("a reply"),
            "{wrong}"
        );
    }
    // Without its answer, a quorum shows the largest fence of its servers, and compares those of the servers that reply in time.
    assert_eq!(answered(&other, "order:42").await.token(), Some(token));
    eventually(LONG, "it is taken", async || {
        let is_taken = other.release_if("order:42", token).await;
        is_taken.expect("a reply") || owner(&other, "order:42").await.is_none()
    })
    .await;
    let next = other.lock("order:42").wait(LONG).acquire().await;
    let next = next.expect("free");
    assert!(next.token() > token);
    assert_taken_away(&guard).await;
    let released = guard.release().await;
    assert!(
        matches!(released, Err(LockError::Lost { .. })),
        "{released:?}"
    );
    assert!(!other.release_if("order:42", token).await.expect("a reply"));
    assert_eq!(holder(&one, "order:42").await.owner, next.owner());
}

pub(crate) async fn a_lock_is_released_by_force_if_its_holder_does_not_reply(place: Place) {
    let silent = place
        .client_of(LockClient::builder().inspectable(false))
        .await;
    let (other, third) = (place.client().await, place.client().await);
    assert!(!other.force_release("order:42").await.expect("a reply"));
    let guard = silent.lock("order:42").acquire().await.expect("free");
    let info = holder(&other, "order:42").await;
    assert_eq!(info.holder, None);
    // A server sees from where the holder is connected.
    let is_seen = |address: &String| address.starts_with("127.0.0.1:");
    let has_server = !matches!(place.topology(), Topology::Memory);
    assert_eq!(
        info.address.as_ref().is_some_and(is_seen),
        has_server,
        "{info:?}"
    );
    assert!(!other.revoke("order:42").await.expect("a reply"));
    let waiter = acquiring(third.lock("order:42").wait(LONG));
    eventually(LONG, "it waits", async || {
        !holder(&other, "order:42").await.queued_owners.is_empty()
    })
    .await;
    assert!(other.force_release("order:42").await.expect("a reply"));
    let next = its_turn(waiter).await;
    assert!(next.token() > guard.token());
    let error = guard.release().await.expect_err("it was taken");
    assert!(matches!(error, LockError::Lost { .. }), "{error:?}");
    assert_eq!(holder(&other, "order:42").await.owner, next.owner());
    next.release().await.expect("held");

    // A lock that `min_hold` keeps has no holder.
    let kept = other.lock("job").min_hold(Duration::from_secs(60));
    kept.run(async {}).await.expect("free");
    let info = holder(&other, "job").await;
    assert_eq!(
        (info.owner.as_str(), info.is_held(), info.holder),
        ("kept", false, None)
    );
    assert!(!other.revoke("job").await.expect("a reply"));
    assert!(other.force_release("job").await.expect("a reply"));
    drop(other.lock("job").wait(LONG).acquire().await.expect("free"));
}

pub(crate) async fn a_retained_lock_is_released_when_it_is_wanted(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let lock = one.lock("tenant:7").retain(LONG * 10);
    // A quorum may release it instead while replies of its servers are late.
    eventually(LONG, "it is retained", async || {
        lock.run(async {}).await.expect("free");
        let info = other.inspect("tenant:7").await.expect("a reply");
        info.is_some_and(|info| info.retained)
    })
    .await;
    eventually(LONG, "its client answers, and it is free", async || {
        other.revoke("tenant:7").await.expect("a reply");
        other.inspect("tenant:7").await.expect("a reply").is_none()
    })
    .await;
}

pub(crate) async fn a_call_that_gives_up_leaves_nothing_behind(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let guard = one.lock("order:42").acquire().await.expect("free");
    for micros in (0..2_000).step_by(50) {
        let limit = Duration::from_micros(micros);
        let _ = tokio::time::timeout(limit, other.inspect("order:42")).await;
        let _ = tokio::time::timeout(limit, listed(&other, "*", true)).await;
        let _ = tokio::time::timeout(
            limit,
            other.release_if("order:42", "7".parse().expect("a token")),
        )
        .await;
    }
    eventually(LONG, "the holder answers", async || {
        let (found, _) = listed(&other, "order:42", false).await;
        holder(&other, "order:42").await.holder.is_some() && found.len() == 1
    })
    .await;
    guard.release().await.expect("it was not taken");
}
