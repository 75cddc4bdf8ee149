//! Checks the keys and options of a lock when it is first acquired, and makes the request of each call.

use std::sync::Arc;

use rlock_proto::{
    few::Few,
    machine::WantedLock,
    options::{LockOptions, Wait},
};

use super::{
    Lock,
    keys::{NamedKey, ascending},
};
use crate::{
    engine::{
        acquire::{CheckedLock, LockRequest},
        shell::AcquiredFor,
    },
    error::LockError,
    limits,
};

impl Lock {
    fn checked(&self) -> Result<&Arc<CheckedLock>, LockError> {
        if let Some(checked) = self.checked.get() {
            return Ok(checked);
        }
        let options = LockOptions {
            // Each call has its own.
            wait: Wait::Never,
            site: self.options.site.in_mode(self.options.mode),
            ..self.options
        };
        let core = self.client.core();
        let wanted = |key: &NamedKey| key.wanted(&options, core.options.redact_keys);
        let locks: Result<Few<WantedLock>, LockError> = self.keys.iter().map(wanted).collect();
        let locks = locks?;
        limits::keys(locks.len())?;
        let (locks, order) = ascending(locks);
        let checked = limits::lock(limits::OF_LOCK, &options);
        if let Err(error) = checked.and_then(|()| limits::mode(&options, core.needs_majority)) {
            return Err(error.of_lock(locks[0].key.shown()));
        }
        let checked = CheckedLock {
            locks,
            order,
            options,
        };
        Ok(self.checked.get_or_init(|| Arc::new(checked)))
    }

    /// Returns the request of a call. `wait` replaces the lock's own option.
    pub(super) fn request(
        &self,
        wait: Wait,
        purpose: AcquiredFor,
    ) -> Result<LockRequest, LockError> {
        let lock = Arc::clone(self.checked()?);
        let of_lock = |error: LockError| error.of_lock(lock.locks[0].key.shown());
        limits::wait("wait", wait).map_err(of_lock)?;
        Ok(LockRequest {
            lock,
            wait,
            purpose,
        })
    }
}
