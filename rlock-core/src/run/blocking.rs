//! Running a closure inside its locks.

use std::mem;

use super::{End, OnLost, give_back, scope_of};
use crate::{blocking::block_on, error::LockError, few::Few, guard::LockGuard, scope::Scope};

/// The locks that the current thread is inside. The caller runs the closure itself: each hand-over
/// would copy the closure.
pub(crate) struct Inside {
    guards: Few<LockGuard>,
    /// The outer scope.
    outer: Scope,
    on_lost: OnLost,
}

impl Inside {
    pub(crate) fn enter(guards: Few<LockGuard>, on_lost: OnLost) -> Self {
        let mut scope = scope_of(&guards);
        scope.swap();
        Self {
            guards,
            outer: scope,
            on_lost,
        }
    }

    /// Releases the locks after the call. Returns an error if a lock was lost meanwhile.
    pub(crate) fn leave<T>(mut self, returned: T) -> Result<T, LockError> {
        match self.end() {
            None => Ok(returned),
            Some(error) => Err(error),
        }
    }

    fn end(&mut self) -> Option<LockError> {
        self.outer.swap();
        let guards = mem::take(&mut self.guards);
        let action = || "give a lock back".to_owned();
        let released = block_on(action, give_back(guards)).flatten();
        End::Returned.told(released, self.on_lost)
    }
}

/// Releases the locks before a panic resumes.
impl Drop for Inside {
    fn drop(&mut self) {
        if !self.guards.is_empty() {
            self.end();
        }
    }
}
