//! The stages of a locked call: acquires, polls the body and catches its panic, drops it after a loss, and releases.
//! Nothing here is generic.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use rlock_proto::machine::HoldEnd;
use tracing::Span;

use super::{Body, BodyEnd, OnLost, scope_of};
use crate::{
    engine::{
        call_chain::Scope,
        entries::Entries,
        entry::{self, EntryHandle},
    },
    error::LockError,
};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A call that acquires its locks, runs its body and releases the locks.
pub(crate) struct Session {
    stage: Mutex<SessionStage>,
    on_lost: OnLost,
}

enum SessionStage {
    Acquires(Boxed<Result<Entries, LockError>>),
    Runs(Runs),
    Releases(BodyEnd, Boxed<Result<(), LockError>>),
    Ended,
}

impl Session {
    /// Makes a session that acquires its locks by `acquire`.
    pub(crate) fn new(
        on_lost: OnLost,
        acquire: impl Future<Output = Result<Entries, LockError>> + Send + 'static,
    ) -> Self {
        Self {
            stage: Mutex::new(SessionStage::Acquires(Box::pin(acquire))),
            on_lost,
        }
    }

    /// Drives the call to its end, where the body is dropped. The body's output is present unless
    /// this returns an error.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut dyn Body,
    ) -> Poll<Option<LockError>> {
        let stage = self.stage.get_mut();
        let stage = stage.unwrap_or_else(PoisonError::into_inner);
        loop {
            match stage {
                SessionStage::Acquires(acquire) => match ready!(acquire.as_mut().poll(cx)) {
                    Ok(entries) => *stage = SessionStage::Runs(Runs::new(entries, self.on_lost)),
                    Err(error) => {
                        *stage = SessionStage::Ended;
                        body.clear();
                        return Poll::Ready(Some(error));
                    }
                },
                SessionStage::Runs(runs) => {
                    let end = ready!(runs.poll(cx, body));
                    let SessionStage::Runs(mut runs) = mem::replace(stage, SessionStage::Ended)
                    else {
                        unreachable!("it is matched above");
                    };
                    runs.entries.ends_by(end.of_holds());
                    *stage = SessionStage::Releases(end, Box::pin(runs.entries.release()));
                }
                SessionStage::Releases(_, release) => {
                    let released = ready!(release.as_mut().poll(cx));
                    let SessionStage::Releases(end, _) = mem::replace(stage, SessionStage::Ended)
                    else {
                        unreachable!("it is matched above");
                    };
                    let error = end.into_error(released, self.on_lost);
                    if error.is_some() {
                        body.clear();
                    }
                    return Poll::Ready(error);
                }
                SessionStage::Ended => panic!("a locked call is polled after it ended"),
            }
        }
    }

    /// Drops the body, inside its scope if it runs. Its locks are then released in the background.
    pub(super) fn cancel(&mut self, body: &mut dyn Body) {
        let stage = self.stage.get_mut();
        let SessionStage::Runs(runs) = stage.unwrap_or_else(PoisonError::into_inner) else {
            return body.clear();
        };
        {
            let _entered = runs.scope.enter();
            body.clear();
        }
        // A destructor must not close a span, so this is not the last reference to it.
        runs.span = None;
        runs.entries.ends_by(HoldEnd::Cancelled);
    }
}

/// A body that runs inside its locks.
struct Runs {
    entries: Entries,
    scope: Scope,
    span: Option<Arc<Span>>,
    on_lost: OnLost,
    /// Resolves when one of the locks is lost. Made when the body waits for the first time.
    loss: Option<Boxed<BodyEnd>>,
}

impl Runs {
    fn new(entries: Entries, on_lost: OnLost) -> Self {
        let (scope, span) = scope_of(&entries);
        Self {
            on_lost,
            loss: None,
            entries,
            scope,
            span,
        }
    }

    /// Polls the body until it ends or a lost lock stops it, then drops the body.
    fn poll(&mut self, cx: &mut Context<'_>, body: &mut dyn Body) -> Poll<BodyEnd> {
        let end = match self.lost() {
            Some(lost) => lost,
            None => match self.poll_body(cx, body) {
                Poll::Ready(end) => end,
                Poll::Pending => ready!(self.poll_loss(cx)),
            },
        };
        if let BodyEnd::Returned | BodyEnd::Failed = end {
            return Poll::Ready(end);
        }
        let _entered = self.scope.enter();
        let _span = self.span.as_ref().map(|span| span.enter());
        Poll::Ready(BodyEnd::of(|| {
            body.clear();
            end
        }))
    }

    fn poll_body(&mut self, cx: &mut Context<'_>, body: &mut dyn Body) -> Poll<BodyEnd> {
        let _entered = self.scope.enter();
        let _span = self.span.as_ref().map(|span| span.enter());
        let mut polled = Poll::Pending;
        let end = BodyEnd::of(|| {
            polled = body.poll(cx);
            BodyEnd::Returned
        });
        match (end, polled) {
            (BodyEnd::Returned, polled) => polled,
            (end, _) => Poll::Ready(end),
        }
    }

    /// Returns how a lost lock ends the body. Checks the clock, because after a pause of the process no notification has
    /// arrived yet.
    fn lost(&self) -> Option<BodyEnd> {
        if self.on_lost == OnLost::Continue {
            return None;
        }
        let mut lost = self.entries.iter().filter_map(|entry| {
            let cause = entry.broken()?;
            Some(BodyEnd::Lost(entry.shown().to_owned(), cause))
        });
        lost.next()
    }

    /// Registers the task of a body that waits, so that a loss wakes it.
    fn poll_loss(&mut self, cx: &mut Context<'_>) -> Poll<BodyEnd> {
        if self.on_lost == OnLost::Continue {
            return Poll::Pending;
        }
        let entries = &self.entries;
        let loss = self.loss.get_or_insert_with(|| first_lost(entries));
        loss.as_mut().poll(cx)
    }
}

fn first_lost(entries: &Entries) -> Boxed<BodyEnd> {
    let entries = entries.handles();
    Box::pin(async move {
        let (entry, cause) = entry::first(entries.iter(), EntryHandle::until_lost).await;
        BodyEnd::Lost(entry.shown().to_owned(), cause)
    })
}
