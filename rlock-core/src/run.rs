//! Running a body inside its locks: acquire, try, finally release.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use futures_util::future::join_all;

use crate::{
    blocking::block_on,
    error::{LockError, LostCause},
    few::Few,
    guard::LockGuard,
    scope::Scope,
};

/// What happens to a body whose lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OnLost {
    /// It is dropped at its next await.
    #[default]
    Cancel,
    /// It runs on, and may ask `current()`.
    Continue,
}

type Panic = Box<dyn Any + Send>;

/// How a body ended.
enum End<T> {
    Returned(T),
    Panicked(Panic),
    Lost(String, LostCause),
}

/// Runs `body` inside the locks of `guards`, innermost last. Its values are dropped before the
/// locks are given back, and the locks are given back before this returns or a panic goes on.
pub(crate) async fn run<F: Future>(
    guards: Few<LockGuard>,
    on_lost: OnLost,
    body: F,
) -> Result<F::Output, LockError> {
    let scope = scope_of(&guards);
    let end = {
        // Declared after the guards, so that a cancelled call drops the body first.
        let mut body = pin!(Some(scope.around(body)));
        let end = until_end(&guards, on_lost, body.as_mut()).await;
        match catch_unwind(AssertUnwindSafe(|| body.set(None))) {
            Ok(()) => end,
            Err(panic) => End::Panicked(panic),
        }
    };
    let released = give_back(guards).await;
    finish(end, released, on_lost)
}

/// Runs a closure inside the locks of `guards`. A loss cannot stop it, but is told at its end.
pub(crate) fn run_blocking<T>(
    guards: Few<LockGuard>,
    on_lost: OnLost,
    body: impl FnOnce() -> T,
) -> Result<T, LockError> {
    let scope = scope_of(&guards);
    let end = match catch_unwind(AssertUnwindSafe(|| scope.around_call(body))) {
        Ok(value) => End::Returned(value),
        Err(panic) => End::Panicked(panic),
    };
    let action = || "give a lock back".to_owned();
    let released = block_on(action, give_back(guards)).flatten();
    finish(end, released, on_lost)
}

/// The scope of a body inside these locks, innermost last.
fn scope_of(guards: &[LockGuard]) -> Scope {
    guards.iter().fold(Scope::current(), |scope, guard| {
        guard.runs_body();
        scope.inside(guard.view().clone())
    })
}

/// Gives locks back, all at once; the first error is the answer.
async fn give_back(mut guards: Few<LockGuard>) -> Result<(), LockError> {
    if guards.len() == 1 {
        return guards.remove(0).release().await;
    }
    let released = join_all(guards.into_iter().map(LockGuard::release)).await;
    released.into_iter().collect()
}

/// What the caller is told, once the locks are given back.
fn finish<T>(
    end: End<T>,
    released: Result<(), LockError>,
    on_lost: OnLost,
) -> Result<T, LockError> {
    match end {
        End::Panicked(panic) => resume_unwind(panic),
        End::Lost(key, cause) => Err(LockError::Lost { key, cause }),
        End::Returned(value) => match released {
            Err(lost @ LockError::Lost { .. }) if on_lost == OnLost::Cancel => Err(lost),
            Err(error) => {
                // The work is done; what it returned is worth more than the release, which goes on
                // in the background.
                tracing::warn!(%error, "the body returned, but its lock was not given back as it should");
                Ok(value)
            }
            Ok(()) => Ok(value),
        },
    }
}

/// Polls the body until it ends or, where that stops it, a lock is lost.
async fn until_end<F: Future>(
    guards: &[LockGuard],
    on_lost: OnLost,
    mut body: Pin<&mut Option<F>>,
) -> End<F::Output> {
    let mut lost = pin!(first_lost(guards));
    let mut told = on_lost == OnLost::Continue;
    poll_fn(|cx| {
        if !told {
            // The clock first: after a pause of the process it knows before anybody is told.
            if let Some(guard) = guards.iter().find(|guard| guard.view().broken().is_some())
                && let Some(cause) = guard.view().broken()
            {
                told = true;
                return Poll::Ready(End::Lost(guard.key().to_owned(), cause));
            }
            if let Poll::Ready((key, cause)) = lost.as_mut().poll(cx) {
                return Poll::Ready(End::Lost(key, cause));
            }
        }
        poll_body(body.as_mut(), cx)
    })
    .await
}

fn poll_body<F: Future>(body: Pin<&mut Option<F>>, cx: &mut Context<'_>) -> Poll<End<F::Output>> {
    let Some(body) = body.as_pin_mut() else {
        return Poll::Pending;
    };
    match catch_unwind(AssertUnwindSafe(|| body.poll(cx))) {
        Ok(poll) => poll.map(End::Returned),
        Err(panic) => Poll::Ready(End::Panicked(panic)),
    }
}

async fn first_lost(guards: &[LockGuard]) -> (String, LostCause) {
    if let [guard] = guards {
        return (guard.key().to_owned(), guard.lost().await);
    }
    let mut losses: Vec<_> = guards.iter().map(|guard| Box::pin(guard.lost())).collect();
    poll_fn(|cx| {
        for (guard, loss) in guards.iter().zip(&mut losses) {
            if let Poll::Ready(cause) = loss.as_mut().poll(cx) {
                return Poll::Ready((guard.key().to_owned(), cause));
            }
        }
        Poll::Pending
    })
    .await
}
