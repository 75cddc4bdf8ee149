//! Runs a body inside its locks, which it releases whether the body returns, fails, panics or is cancelled.
//!
//! Every annotated function instantiates the generic part, so that part is thin.

use std::{
    any::Any,
    future::Future,
    marker::PhantomData,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use rlock_proto::{lost::LostCause, machine::HoldEnd};
use tracing::{Span, span::EnteredSpan};

pub(crate) use self::{outcome::has_failed, session::Session};
use crate::{
    blocking::block_on,
    engine::{call_chain::Scope, entries::Entries},
    error::LockError,
};

mod outcome;
mod session;

/// What a lost lock does to its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OnLost {
    /// Drops the body at its next await.
    #[default]
    Cancel,
    /// Lets the body continue. It can check `current()`.
    Continue,
}

/// A body that runs inside its locks. Its values are dropped before the release. The release ends
/// before this future resolves or a panic resumes.
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Run<F: Future, H> {
    // The compiler checks the fields for `Send` in this order. It checks the session once, before it descends through
    // nested calls, and from the marker it descends in fewer steps than from the box.
    session: Session,
    marker: PhantomData<F>,
    body: BodyOrOutput<F>,
    // The mutexes of a call are never locked. They make it `Sync` and `UnwindSafe`, whatever they contain.
    on_error: Mutex<Option<H>>,
}

impl<F, H> Run<F, H>
where
    F: Future,
    H: FnOnce(LockError) -> F::Output,
{
    pub(crate) fn new(
        session: Session,
        body: Pin<Box<F>>,
        has_failed: fn(&F::Output) -> bool,
        on_error: H,
    ) -> Self {
        Self {
            session,
            marker: PhantomData,
            body: BodyOrOutput::Body(body, has_failed),
            on_error: Mutex::new(Some(on_error)),
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
        let end = ready!(run.session.poll(cx, &mut run.body));
        match (end, mem::replace(&mut run.body, BodyOrOutput::Empty)) {
            (None, BodyOrOutput::Output(output)) => {
                Poll::Ready(output.into_inner().unwrap_or_else(PoisonError::into_inner))
            }
            (Some(error), _) => {
                let on_error = run.on_error.get_mut();
                let on_error = on_error.unwrap_or_else(PoisonError::into_inner).take();
                Poll::Ready(on_error.expect("the session ends once")(error))
            }
            (None, _) => unreachable!("a session without an error has an output"),
        }
    }
}

impl<F: Future, H> Drop for Run<F, H> {
    fn drop(&mut self) {
        self.session.cancel(&mut self.body);
    }
}

/// A body and the check of its output, then its output. Is `Sync` if the body is.
enum BodyOrOutput<F: Future> {
    Body(Pin<Box<F>>, fn(&F::Output) -> bool),
    Output(Mutex<F::Output>),
    Empty,
}

/// A [`BodyOrOutput`] without its type.
trait Body {
    /// Polls the body. When it returns, replaces it by its output.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyEnd>;

    /// Drops the body or its output.
    fn clear(&mut self);
}

impl<F: Future> Body for BodyOrOutput<F> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyEnd> {
        let Self::Body(body, has_failed) = self else {
            return Poll::Pending;
        };
        let output = ready!(body.as_mut().poll(cx));
        let end = BodyEnd::returned(has_failed(&output));
        *self = Self::Output(Mutex::new(output));
        Poll::Ready(end)
    }

    fn clear(&mut self) {
        *self = Self::Empty;
    }
}

enum BodyEnd {
    Returned,
    /// The body returned an error.
    Failed,
    Panicked(Box<dyn Any + Send>),
    Lost(String, LostCause),
}

impl BodyEnd {
    /// Runs a call and catches its panic.
    fn of(call: impl FnOnce() -> Self) -> Self {
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(Self::Panicked)
    }

    fn returned(has_failed: bool) -> Self {
        if has_failed {
            Self::Failed
        } else {
            Self::Returned
        }
    }

    /// Returns how the holds of the call end, except of a lock that is lost.
    fn of_holds(&self) -> HoldEnd {
        match self {
            Self::Returned => HoldEnd::Released,
            Self::Failed => HoldEnd::Failed,
            Self::Panicked(_) => HoldEnd::Panicked,
            Self::Lost(..) => HoldEnd::Cancelled,
        }
    }

    /// Returns the error for the caller after the release, or `None` if the caller gets the body's
    /// output.
    fn into_error(self, released: Result<(), LockError>, on_lost: OnLost) -> Option<LockError> {
        match self {
            Self::Panicked(panic) => resume_unwind(panic),
            Self::Lost(key, cause) => Some(LockError::Lost { key, cause }),
            Self::Returned | Self::Failed => match released {
                Err(lost @ LockError::Lost { .. }) if on_lost == OnLost::Cancel => Some(lost),
                Err(error) => {
                    // The work is done, and its output is worth more than the release, which
                    // continues in the background.
                    let error = format_args!("{error:#}");
                    tracing::warn!(%error, "the body returned, but the release of its lock failed");
                    None
                }
                Ok(()) => None,
            },
        }
    }
}

/// Returns the scope of a body inside these locks, and the span of the last one.
fn scope_of(entries: &Entries) -> (Scope, Option<Arc<Span>>) {
    let span = entries.last().and_then(|entry| entry.span());
    (Scope::current().inside(entries.handles()), span)
}

/// The locks that the current thread is inside. The caller runs the closure itself: each function that takes it
/// would copy it.
pub(crate) struct BlockingBody {
    /// `None` once the call has ended.
    entries: Option<Entries>,
    outer: Scope,
    span: Option<EnteredSpan>,
    on_lost: OnLost,
}

impl BlockingBody {
    pub(crate) fn enter(entries: Entries, on_lost: OnLost) -> Self {
        let (mut scope, span) = scope_of(&entries);
        scope.begin();
        let mut inside = Self {
            entries: Some(entries),
            span: None,
            outer: scope,
            on_lost,
        };
        // If the subscriber panics from here on, `inside` is dropped and restores the outer scope.
        inside.span = span.map(|span| Span::clone(&span).entered());
        inside
    }

    /// Releases the locks after the call. Returns an error if a lock was lost during the call.
    pub(crate) fn leave<T>(mut self, returned: T) -> Result<T, LockError> {
        let end = BodyEnd::returned(has_failed(&returned)).of_holds();
        let entries = self.entries.take();
        let error = entries.and_then(|entries| self.end(entries, end));
        error.map_or(Ok(returned), Err)
    }

    fn end(&mut self, mut entries: Entries, end: HoldEnd) -> Option<LockError> {
        self.outer.swap();
        self.span = None;
        entries.ends_by(end);
        let action = || "release a lock".to_owned();
        let released = block_on(action, entries.release()).flatten();
        BodyEnd::Returned.into_error(released, self.on_lost)
    }
}

/// Releases the locks before a panic resumes.
impl Drop for BlockingBody {
    fn drop(&mut self) {
        if let Some(entries) = self.entries.take() {
            self.end(entries, HoldEnd::Panicked);
        }
    }
}
