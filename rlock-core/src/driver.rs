//! The client's own background: a thread with a runtime for its connection, its watchdog and its
//! release queue, so that nothing the service does to its own runtime touches a held lock.

use std::{future::Future, io, sync::Arc, thread, time::Duration};
use std::{future::poll_fn, pin::pin};

use tokio::{
    runtime::{Builder, Handle},
    sync::{SetOnce, oneshot},
    time::timeout,
};

use crate::sync::enter;
use crate::{core::Core, error::LostCause, release};

/// How long a client whose last handle is gone goes on giving back what was dropped.
const DRAIN: Duration = Duration::from_secs(5);
/// A pause before a background task that panicked starts again.
const RESTART: Duration = Duration::from_millis(100);

/// Where a client's background runs.
pub(crate) struct Driver {
    pub(crate) runtime: Handle,
    /// The timers of calls, on a thread that always runs.
    pub(crate) timers: Handle,
    /// Keeps the client's thread alive; `None` if there is none.
    keep: Option<Arc<oneshot::Sender<()>>>,
}

impl Driver {
    /// Starts a named thread with a runtime of its own.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (keep, dropped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("rlock".to_owned())
            .spawn(move || {
                // Ends when the last `keep` is dropped.
                let _ = runtime.block_on(dropped);
            })?;
        Ok(Self {
            runtime: handle.clone(),
            timers: handle,
            keep: Some(Arc::new(keep)),
        })
    }

    /// Runs the background on the user's runtime. That runtime may not be driven, so the timers of
    /// calls run on a thread of the client.
    pub(crate) fn on(runtime: Handle) -> io::Result<Self> {
        Ok(Self {
            runtime,
            ..Self::start()?
        })
    }

    /// Runs the background and all timers on a runtime whose clock the user controls.
    pub(crate) fn in_time_of(runtime: Handle) -> Self {
        Self {
            timers: runtime.clone(),
            runtime,
            keep: None,
        }
    }

    /// Returns whether the background may be on a runtime that is not driven.
    pub(crate) fn may_stand_still(&self) -> bool {
        self.runtime.id() != self.timers.id()
    }

    /// Runs a connection attempt on the calling executor. Returns `None` if the user's runtime does
    /// not complete it within `limit`.
    pub(crate) async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut future = pin!(async {
            if self.may_stand_still() {
                timeout(limit, future).await.ok()
            } else {
                Some(future.await)
            }
        });
        poll_fn(|cx| {
            let _entered = enter(&self.timers);
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Begins the background work of a client.
    pub(crate) fn drive(self, core: Arc<Core>) -> Stop {
        let wish = Arc::new(SetOnce::<Wish>::new());
        let stop = Stop {
            wish: Arc::clone(&wish),
            _keep: self.keep.clone(),
        };
        // Made here: a runtime that is gone drops the task without ever polling it.
        let end = End {
            core,
            _keep: self.keep,
        };
        self.runtime.spawn(async move {
            let end = end;
            background(&end.core, &wish).await;
        });
        stop
    }
}

/// Says that the background has ended, however it did.
struct End {
    core: Arc<Core>,
    _keep: Option<Arc<oneshot::Sender<()>>>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.core.close();
        self.core.watchdog.lose_all(LostCause::Closed);
        self.core.releases().close();
        self.core.end_background();
    }
}

/// How the background is to end.
enum Wish {
    /// Everything was given back, or waited for.
    AtOnce,
    /// What was dropped is to be given back before.
    WhenDrained,
}

/// Ends the background when dropped, after what was dropped has been given back.
pub(crate) struct Stop {
    wish: Arc<SetOnce<Wish>>,
    // The timers of whoever still has a client live on the thread.
    _keep: Option<Arc<oneshot::Sender<()>>>,
}

impl Stop {
    /// Ends the background at once.
    pub(crate) fn stop(&self) {
        let _ = self.wish.set(Wish::AtOnce);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        let _ = self.wish.set(Wish::WhenDrained);
    }
}

async fn background(core: &Arc<Core>, stop: &SetOnce<Wish>) {
    let tasks = async {
        tokio::join!(
            supervised("watchdog", || core.renewer().run()),
            supervised("release queue", || release::run(Arc::clone(core))),
            supervised("store", || Arc::clone(&core.store).background()),
        );
    };
    let end = async {
        // A client whose shutdown was cancelled is closed, and has not waited for anything.
        if let Wish::WhenDrained = stop.wait().await {
            core.queues.end_retentions();
            if timeout(DRAIN, core.releases().idle()).await.is_err() {
                tracing::warn!(
                    "locks that could not be given back in time are left to their lease"
                );
            }
        }
    };
    tokio::select! {
        () = tasks => {}
        () = end => {}
    }
}

/// Runs a background task, and runs it again should it ever panic: holds must not go unrenewed
/// because of a bug that one of them provoked.
async fn supervised<F>(name: &str, start: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let mut task = Owned(tokio::spawn(start()));
        match (&mut task.0).await {
            Err(error) if error.is_panic() => {
                tracing::error!(task = name, %error, "background task panicked, it starts again");
                tokio::time::sleep(RESTART).await;
            }
            _ => return,
        }
    }
}

/// A spawned task that ends with its owner.
struct Owned(tokio::task::JoinHandle<()>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}
