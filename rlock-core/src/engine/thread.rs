//! The background thread of a client, with a runtime of its own, which a blocked service does not stop. A service
//! that blocks its own runtime does not endanger its locks.

use std::{io, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// The runtime of a client's background and of the timers of its calls.
pub(crate) struct ClientThread {
    pub(crate) runtime: Handle,
    /// Ends the client's thread when dropped; `None` if there is none.
    _thread: Option<oneshot::Sender<()>>,
}

impl ClientThread {
    /// Starts a named thread with a runtime of its own.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (keep, dropped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("rlock".to_owned())
            .spawn(move || runtime.block_on(dropped))?;
        Ok(Self {
            runtime: handle,
            _thread: Some(keep),
        })
    }

    /// Runs the background and all timers on a runtime whose clock the user controls.
    #[cfg(feature = "testing")]
    pub(crate) fn on_clock_of(runtime: Handle) -> Self {
        Self {
            runtime,
            _thread: None,
        }
    }
}
