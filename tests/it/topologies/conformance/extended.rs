//! Leases that a holder extends, and locks that are detached from their guards.

use std::time::Duration;

use rlock_core::{DrainOutcome, LockError, LostCause, Token, current};
use rlock_testkit::{Place, eventually, within};

use super::LONG;
use crate::common::cause_of;

/// So short that a busy machine may end it, and so long that a test which waits for its end does not take long.
const BRIEF: Duration = Duration::from_millis(100);

pub(crate) async fn an_extension_sets_the_lease_from_now_on_and_revives_nothing(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let lock = one.lock("import").lease(LONG).watchdog(false);
    let guard = lock.acquire().await.expect("free");
    for _ in 0..2 {
        guard.extend(LONG * 4).await.expect("held");
        let left = guard.valid_for();
        assert!(left > LONG && left <= LONG * 4, "it adds nothing: {left:?}");
    }
    guard.extend(LONG).await.expect("held");
    assert!(guard.valid_for() <= LONG, "at once");
    assert!(other.force_release("import").await.expect("a reply"));
    let taken = guard.extend(LONG).await;
    assert!(matches!(taken, Err(LockError::Lost { .. })), "{taken:?}");
    let next = within(
        LONG,
        "it is free",
        other.lock("import").wait(LONG).acquire(),
    )
    .await;
    next.expect("free").release().await.expect("held");
    drop(guard);

    let ended = lock.run(async { current().expect("inside") });
    let ended = ended.await.expect("free");
    assert_eq!(
        cause_of(ended.extend(LONG).await),
        Some(LostCause::Released)
    );
    let both = one.lock_all(["a", "b"]).lease(LONG);
    let both = both.acquire().await.expect("free");
    both.extend(LONG * 4).await.expect("held");
    assert!(both.valid_for() > LONG, "both of them");
    both.release().await.expect("held");

    let brief = one.lock("brief").lease(LONG).watchdog(false);
    let brief = brief.acquire().await.expect("free");
    // The lease may end before the reply.
    let _ = brief.extend(BRIEF).await;
    let cause = within(LONG, "it ends", brief.lost()).await;
    assert_eq!(cause, LostCause::Expired);
    let late = cause_of(brief.extend(LONG).await);
    assert_eq!(late, Some(LostCause::Expired));
    drop(brief);
    // The store would keep the lock for longer, but the guard releases it.
    let next = other.lock("brief").wait(LONG).acquire().await;
    next.expect("free").release().await.expect("held");
}

pub(crate) async fn a_lock_is_extended_by_the_token_of_its_hold_only(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let any = "7".parse().expect("a token");
    let free = other.extend_if("k", any, LONG).await;
    assert!(!free.expect("a reply"), "nothing is created");
    assert!(other.inspect("k").await.expect("a reply").is_none());
    let guard = one.lock("k").lease(LONG).watchdog(false).acquire().await;
    let guard = guard.expect("free");
    let token = guard.token();
    for wrong in [1, token.as_u64() - 1, (1 << 53) - 1] {
        let wrong = Token::try_from(wrong).expect("a token");
        let extended = other.extend_if("k", wrong, LONG * 4).await;
        assert!(!extended.expect("a reply"), "{wrong}");
    }
    assert!(guard.valid_for() <= LONG);
    // A busy holder may answer too late.
    eventually(LONG, "the holder relies on it", async || {
        let extended = other.extend_if("k", token, LONG * 4).await;
        assert!(extended.expect("a reply"));
        guard.valid_for() > LONG
    })
    .await;
    let extended = other.extend_if("k", token, BRIEF).await;
    assert!(extended.expect("a reply") && guard.valid_for() > LONG);
    guard.release().await.expect("held");
    let released = other.extend_if("k", token, LONG).await;
    assert!(!released.expect("a reply"));
}

pub(crate) async fn a_detached_lock_belongs_to_those_who_have_its_token(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let lock = one.lock("upload").lease(LONG * 10);
    let first = lock.acquire().await.expect("free");
    let shared = first.token();
    let token = first.detach().expect("held");
    assert_eq!(token, shared);
    for client in [&one, &other] {
        let attempt = client.lock("upload").try_acquire().await;
        assert!(attempt.expect("a reply").is_none(), "it stays taken");
    }
    let drained = one.drain(LONG).await.expect("it holds nothing");
    assert_eq!(drained, DrainOutcome::Completed);
    let attempt = other.lock("upload").try_acquire().await;
    assert!(attempt.expect("a reply").is_none(), "its process may end");
    let wrong = Token::try_from(token.as_u64() - 1_000).expect("a token");
    for refused in [
        other.extend_if("upload", wrong, LONG * 20).await,
        other.release_if("upload", wrong).await,
    ] {
        assert!(!refused.expect("a reply"));
    }
    let extended = other.extend_if("upload", token, LONG * 20).await;
    assert!(extended.expect("a reply"));
    let info = other.inspect("upload").await.expect("a reply");
    let left = info.and_then(|info| info.ttl);
    assert!(left.is_some_and(|left| left > LONG * 10), "{left:?}");
    let released = other.release_if("upload", token).await;
    assert!(released.expect("a reply"));
    for late in [
        other.extend_if("upload", token, LONG).await,
        other.release_if("upload", token).await,
    ] {
        assert!(!late.expect("a reply"));
    }
    let next = other.lock("upload").wait(LONG).acquire().await;
    let next = next.expect("free");
    assert!(next.token() > token);

    // Without an extension, the lease ends it.
    let brief = other.lock("brief").lease(BRIEF * 10).acquire().await;
    let token = brief.expect("free").detach().expect("held");
    let after = other.lock("brief").wait(LONG).acquire().await;
    assert!(after.expect("free").token() > token);
}
