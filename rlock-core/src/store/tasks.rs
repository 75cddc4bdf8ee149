//! Tasks that end with the value that owns them, or start again if they panic.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use super::StoreError;

/// The pause before a task that panicked restarts.
const RESTART: Duration = Duration::from_millis(100);

/// A handle that ends its task when dropped.
pub(in crate::store) struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    pub(in crate::store) fn new<T>(task: &JoinHandle<T>) -> Self {
        Self(task.abort_handle())
    }

    pub(in crate::store) fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Runs a background task, and restarts it if it panics: a bug that one ownership or one node provokes must not stop the
/// renewal of all others.
pub(crate) async fn supervised<F>(name: &str, start: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        // Ends the task when dropped.
        let mut task = JoinSet::new();
        task.spawn(start());
        match task.join_next().await {
            Some(Err(error)) if error.is_panic() => {
                // A subscriber may panic again.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    tracing::error!(task = name, %error, "background task panicked, it starts again");
                }));
                tokio::time::sleep(RESTART).await;
            }
            _ => return,
        }
    }
}

/// Returns the result of a connection task. Dropping this future ends the task.
pub(crate) async fn connecting<T>(
    task: JoinHandle<Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let _task = AbortOnDrop::new(&task);
    task.await
        .unwrap_or_else(|error| Err(StoreError::new(false, true, error)))
}
