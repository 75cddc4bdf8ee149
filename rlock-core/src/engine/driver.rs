//! Starts a client's background tasks, and stops them with the last handle.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use rlock_proto::machine::{Input, Machine};
use tokio::{sync::SetOnce, time::timeout};

use crate::{
    engine::{background, core::Core, queries},
    store::tasks::supervised,
};

/// How long a client continues to release dropped locks after its last handle was dropped.
const DRAIN: Duration = Duration::from_secs(5);

/// A handle of a client. The background ends with the last one.
#[derive(Clone)]
pub(crate) struct ClientHandle(Arc<Running>);

// A panic leaves no partial change: no foreign code runs while a client's state changes.
impl UnwindSafe for ClientHandle {}
impl RefUnwindSafe for ClientHandle {}

impl fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.core().id)
            .finish_non_exhaustive()
    }
}

/// Ends the background when dropped, after the dropped locks are released.
struct Running {
    core: Arc<Core>,
    stop: Arc<SetOnce<Stop>>,
}

/// Why the background ends.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// The last handle was dropped, so its locks still have to be released.
    Dropped,
    /// A shutdown has waited for the releases.
    ShutDown,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.set(Stop::Dropped);
    }
}

impl ClientHandle {
    /// Begins the background work of a client.
    pub(crate) fn start(core: Core) -> Self {
        let core = Arc::new(core);
        let stop = Arc::new(SetOnce::new());
        // Made here: a runtime that is gone drops the task without ever polling it.
        let (end, stopped) = (BackgroundEnd(Arc::clone(&core)), Arc::clone(&stop));
        core.thread.runtime.spawn(async move {
            let end = end;
            run(&end.0, &stopped).await;
        });
        Self(Arc::new(Running { core, stop }))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    /// Ends the background without further releases.
    pub(crate) fn stop(&self) {
        let _ = self.0.stop.set(Stop::ShutDown);
    }
}

/// Marks the client as ended when dropped: the background has ended, or never started.
struct BackgroundEnd(Arc<Core>);

impl Drop for BackgroundEnd {
    fn drop(&mut self) {
        self.0.end_background();
    }
}

async fn run(core: &Arc<Core>, stop: &SetOnce<Stop>) {
    let tasks = async {
        tokio::join!(
            supervised("background", || background::run(Arc::clone(core))),
            supervised("queries", || queries::run(Arc::clone(core))),
            supervised("announcements", || background::announcing::run(Arc::clone(
                core
            ))),
            supervised("store", || Arc::clone(&core.store).background()),
        );
    };
    let end = async {
        if *stop.wait().await == Stop::ShutDown {
            return;
        }
        core.shell.on(Input::Drain);
        let released = core.shell.until(Machine::is_released);
        if timeout(DRAIN, released).await.is_err() {
            tracing::warn!(
                "could not release all dropped locks in time, their leases will end them"
            );
        }
        let limit = core.options.response_timeout;
        let _ = timeout(limit, core.shell.announcements.until_sent()).await;
    };
    tokio::select! {
        () = tasks => {}
        () = end => {}
    }
}
