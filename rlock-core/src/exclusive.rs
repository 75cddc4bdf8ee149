//! Values without shared access.

use std::sync::{Mutex, PoisonError};

/// A value that only an exclusive reference can access. Its container can be `Sync` although the
/// value is not.
#[derive(Default)]
pub(crate) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        // The mutex is never locked, so it is never poisoned.
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
