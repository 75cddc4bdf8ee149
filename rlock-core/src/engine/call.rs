//! Drives one call: sends the requests of its steps, waits to be woken, and cancels the call when its future is
//! dropped.

use std::{
    future::{Ready, poll_fn, ready},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_util::{FutureExt, TryFutureExt, future::Either};
use rlock_proto::{
    few::Few,
    key::Key,
    machine::{CallId, Failure, Input, Reply, Request, Step},
    options::Site,
    store::StoreRequest,
};

use crate::{
    engine::{
        core::Core,
        hold_record::HoldRecord,
        shell::{Begins, Shell},
        unread::Unread,
    },
    error::LockError,
    store::{SendOptions, StoreError},
};

/// A call that has not ended.
pub(crate) struct CallGuard<'a> {
    core: &'a Arc<Core>,
    id: CallId,
    has_ended: bool,
    /// Whether the call is woken when it has a next step.
    is_registered: bool,
    /// The holds of a call that acquires.
    begins: Option<Begins>,
    /// The error of the latest request that was not executed, or else of the latest one.
    error: Option<Box<StoreError>>,
}

impl<'a> CallGuard<'a> {
    pub(crate) fn new(core: &'a Arc<Core>) -> Self {
        Self {
            core,
            id: core.shell.call_id(),
            has_ended: false,
            is_registered: false,
            begins: None,
            error: None,
        }
    }

    /// Returns a call that acquires locks at this site.
    pub(crate) fn acquiring(core: &'a Arc<Core>, site: Site) -> Self {
        let mut call = Self::new(core);
        call.begins = Some(Begins::new(site));
        call
    }

    /// Returns the hold of each entry, after the call has its entries.
    pub(crate) fn take_holds(&mut self) -> Few<Arc<HoldRecord>> {
        let begins = self.begins.as_mut();
        begins.map_or_else(Few::new, |begins| std::mem::take(&mut begins.holds))
    }

    pub(crate) fn id(&self) -> CallId {
        self.id
    }

    /// Returns whether the call has to wait since its first step, and was not woken yet.
    pub(crate) fn has_only_begun(&self) -> bool {
        self.is_registered
    }

    /// Begins the call with this input, and returns its first step. The shell wakes a call that has to wait.
    ///
    /// The input is made when it is needed, so that the future does not keep it.
    pub(crate) async fn begin(&mut self, input: impl FnOnce(CallId) -> Input) -> Step {
        let (shell, id, mut input) = (&self.core.shell, self.id, Some(input));
        let begins = &mut self.begins;
        let step = poll_fn(|cx| {
            let input = input.take().map_or(Input::Poll(id), |input| input(id));
            Poll::Ready(shell.on_call(input, id, begins.as_mut(), cx))
        });
        let step = step.await;
        self.is_registered = matches!(step, Step::Wait);
        self.noted(step)
    }

    fn noted(&mut self, step: Step) -> Step {
        self.has_ended = step.is_last();
        step
    }

    /// Waits until the machine has another step.
    pub(crate) async fn woken(&mut self) -> Step {
        let (shell, id) = (&self.core.shell, self.id);
        let mut is_registered = std::mem::take(&mut self.is_registered);
        let begins = &mut self.begins;
        let step = poll_fn(|cx| {
            if std::mem::take(&mut is_registered) {
                return Poll::Pending;
            }
            match shell.on_call(Input::Poll(id), id, begins.as_mut(), cx) {
                Step::Wait => Poll::Pending,
                step => Poll::Ready(step),
            }
        });
        let step = step.await;
        self.noted(step)
    }

    /// Sends a request, and returns the step that follows the reply.
    pub(crate) async fn send(&mut self, request: Box<Request>) -> Step {
        let (core, number) = (self.core, request.number);
        let (asked, options) = (request.for_store(core.id), options_of(&request));
        let sending = Sending::new(core, request);
        if core.is_closed() {
            return self.unanswered(sending);
        }
        let reply = match ask(core, &asked, options) {
            Either::Left(reply) => return self.answered(sending, reply.into_inner()),
            Either::Right(reply) => reply,
        };
        let acquires = self.begins.is_some();
        let unread = acquires.then(|| Unread::new(&core.shell, self.id, number));
        match core.sent_until_closed(pin!(reply), unread).await {
            Some(reply) => self.answered(sending, reply),
            None => self.unanswered(sending),
        }
    }

    /// Returns the next step of a call whose client was closed before the reply.
    fn unanswered(&mut self, sending: Sending) -> Step {
        drop(sending);
        let (shell, poll) = (&self.core.shell, Input::Poll(self.id));
        let step = shell.on_begun(poll, self.begins.as_mut());
        self.noted(step.unwrap_or(Step::Wait))
    }

    fn answered(&mut self, sending: Sending, reply: Result<Reply, StoreError>) -> Step {
        let (step, error) = sending.replied(reply, self.begins.as_mut());
        // The last request may have been cut short by the end of the wait, so an earlier error is more precise.
        let is_vague = |error: &StoreError| error.maybe_executed;
        if let Some(error) = error
            && (!is_vague(&error) || self.error.as_deref().is_none_or(is_vague))
        {
            self.error = Some(error);
        }
        self.noted(step)
    }

    /// Returns the error of a call whose requests failed.
    pub(crate) fn error(&mut self, keys: &[&Key], action: String, waited: Duration) -> LockError {
        let error = self
            .error
            .take()
            .map_or_else(StoreError::busy, |error| *error);
        error
            .hide(keys.iter().copied())
            .into_lock_error(action, waited)
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.core.shell.cancel(self.id);
        }
    }
}

/// A request to be sent. If this is dropped without a reply, the machine learns that none will come.
pub(super) struct Sending {
    shell: Arc<Shell>,
    request: Option<Box<Request>>,
}

impl Sending {
    pub(super) fn new(core: &Core, request: Box<Request>) -> Self {
        Self {
            shell: Arc::clone(&core.shell),
            request: Some(request),
        }
    }

    /// Tells the machine the reply. Returns the next step of the call that sent the request, and the error.
    fn replied(
        mut self,
        reply: Result<Reply, StoreError>,
        begins: Option<&mut Begins>,
    ) -> (Step, Option<Box<StoreError>>) {
        let (reply, error) = match reply {
            Ok(reply) => (reply, None),
            Err(error) => {
                let failure = Failure {
                    maybe_executed: error.maybe_executed,
                    transient: error.transient,
                };
                let reply = if error.granted.is_empty() {
                    Reply::Failed(failure)
                } else {
                    Reply::FailedInPart(error.granted.clone(), failure)
                };
                (reply, Some(Box::new(error)))
            }
        };
        let step = self
            .request
            .take()
            .map(|request| Input::Reply(request, reply))
            .and_then(|input| self.shell.on_begun(input, begins));
        (step.unwrap_or(Step::Wait), error)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.shell.on_drop(Input::Reply(request, Reply::None));
        }
    }
}

/// Sends a request of the background, and tells the machine the reply.
pub(super) async fn perform(core: &Core, sending: Sending) {
    if let Some(request) = &sending.request {
        let asked = request.for_store(core.id);
        let reply = ask(core, &asked, options_of(request)).await;
        sending.replied(reply, None);
    }
}

fn options_of(request: &Request) -> SendOptions {
    SendOptions::new(request.timeout).in_doubt(request.is_in_doubt())
}

/// Sends a request to the store. The embedded store replies at once.
fn ask<'a>(
    core: &'a Core,
    request: &'a StoreRequest,
    options: SendOptions,
) -> Either<
    Ready<Result<Reply, StoreError>>,
    impl Future<Output = Result<Reply, StoreError>> + Send + 'a,
> {
    match request {
        StoreRequest::Acquire(acquire) => match core.store.acquire(acquire, options) {
            Either::Left(reply) => Either::Left(ready(reply.into_inner().map(Reply::Acquired))),
            Either::Right(reply) => Either::Right(reply.map_ok(Reply::Acquired).left_future()),
        },
        StoreRequest::Change(change) => match core.store.apply(change, options) {
            Either::Left(reply) => Either::Left(ready(reply.into_inner().map(Reply::Applied))),
            Either::Right(reply) => Either::Right(reply.map_ok(Reply::Applied).right_future()),
        },
    }
}
