//! Aborts a task when the value that owns it is dropped.

use tokio::task::{AbortHandle, JoinHandle};

use super::StoreError;

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

/// Returns the result of a connection task. Dropping this future ends the task.
pub(crate) async fn connecting<T>(
    task: JoinHandle<Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let _task = AbortOnDrop::new(&task);
    task.await
        .unwrap_or_else(|error| Err(StoreError::new(false, true, error)))
}
