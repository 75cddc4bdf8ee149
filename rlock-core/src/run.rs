//! Running a body inside its locks: acquire, try, finally release.
//!
//! Each annotated function compiles the generic part once more, so that part is thin.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::future::join_all;

pub(crate) use self::{blocking::Inside, session::Session};
use crate::{
    error::{LockError, LostCause},
    exclusive::Exclusive,
    few::Few,
    guard::LockGuard,
    scope::Scope,
};

mod blocking;
mod session;

/// What happens to a body whose lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OnLost {
    /// It is dropped at its next await.
    #[default]
    Cancel,
    /// It runs on, and may ask `current()`.
    Continue,
}

/// A body that runs inside its locks. Its values are dropped before the release. The release ends
/// before this future resolves or a panic resumes.
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Run<F: Future, H> {
    body: Slot<F>,
    or_else: Exclusive<Option<H>>,
    session: Session,
}

impl<F, H> Run<F, H>
where
    F: Future,
    H: FnOnce(LockError) -> F::Output,
{
    pub(crate) fn new(session: Session, body: Pin<Box<F>>, or_else: H) -> Self {
        Self {
            body: Slot {
                future: Some(body),
                output: Exclusive::new(None),
            },
            or_else: Exclusive::new(Some(or_else)),
            session,
        }
    }
}

/// Only the body needs a pin, and it is boxed.
impl<F: Future, H> Unpin for Run<F, H> {}

impl<F, H> Future for Run<F, H>
where
    F: Future,
    H: FnOnce(LockError) -> F::Output,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let run = &mut *self;
        match run.session.poll(cx, &mut run.body) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(taken(run.body.output.get_mut())),
            Poll::Ready(Some(error)) => Poll::Ready(taken(run.or_else.get_mut())(error)),
        }
    }
}

impl<F: Future, H> Drop for Run<F, H> {
    fn drop(&mut self) {
        self.session.cancel(&mut self.body);
    }
}

fn taken<T>(slot: &mut Option<T>) -> T {
    slot.take()
        .expect("the session is polled until it ends once")
}

/// A body, then its output.
struct Slot<F: Future> {
    future: Option<Pin<Box<F>>>,
    output: Exclusive<Option<F::Output>>,
}

/// A body without its type.
trait Body {
    /// Polls the body and stores its output.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Drops the body and all its values.
    fn drop_body(&mut self);

    /// Drops the output.
    fn drop_output(&mut self);
}

impl<F: Future> Body for Slot<F> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.future else {
            return Poll::Pending;
        };
        match future.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(output) => {
                *self.output.get_mut() = Some(output);
                Poll::Ready(())
            }
        }
    }

    fn drop_body(&mut self) {
        self.future = None;
    }

    fn drop_output(&mut self) {
        *self.output.get_mut() = None;
    }
}

/// The end of a body.
enum End {
    Returned,
    Panicked(Box<dyn Any + Send>),
    Lost(String, LostCause),
}

impl End {
    /// Runs a call and catches its panic.
    fn of(call: impl FnOnce() -> Self) -> Self {
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(Self::Panicked)
    }

    /// Returns the error for the caller after the release, or `None` if the caller gets the body's
    /// output.
    fn told(self, released: Result<(), LockError>, on_lost: OnLost) -> Option<LockError> {
        match self {
            Self::Panicked(panic) => resume_unwind(panic),
            Self::Lost(key, cause) => Some(LockError::Lost { key, cause }),
            Self::Returned => match released {
                Err(lost @ LockError::Lost { .. }) if on_lost == OnLost::Cancel => Some(lost),
                Err(error) => {
                    // The work is done, and its output is worth more than the release, which
                    // continues in the background.
                    tracing::warn!(%error, "the body returned, but its lock was not given back as it should");
                    None
                }
                Ok(()) => None,
            },
        }
    }
}

/// Returns the scope of a body inside these locks, innermost last.
fn scope_of(guards: &[LockGuard]) -> Scope {
    guards.iter().fold(Scope::current(), |scope, guard| {
        guard.runs_body();
        scope.inside(guard.view().clone())
    })
}

/// Releases all locks in parallel and returns the first error.
pub(crate) async fn give_back(mut guards: Few<LockGuard>) -> Result<(), LockError> {
    if guards.len() == 1 {
        return guards.remove(0).release().await;
    }
    let released = join_all(guards.into_iter().map(LockGuard::release)).await;
    released.into_iter().collect()
}
