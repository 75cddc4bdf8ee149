//! Which clock a client has, and so where its background runs.

use std::{sync::Arc, time::Duration};

use crate::{clock::ClientClock, engine::thread::ClientThread, error::LockError};
#[cfg(feature = "testing")]
use crate::{
    clock::{Clock, GivenClock},
    store::endpoint::Endpoint,
};

#[derive(Clone, Default)]
pub(crate) enum ClockOption {
    #[default]
    System,
    #[cfg(feature = "testing")]
    Tokio,
    #[cfg(feature = "testing")]
    Ahead(Clock),
    #[cfg(test)]
    Slept(Arc<std::sync::atomic::AtomicU64>),
}

impl ClockOption {
    /// Starts the client's thread, unless its background runs where the clock is.
    pub(super) fn start(&self) -> Result<(ClientThread, ClientClock), LockError> {
        let clock = match self {
            Self::System => ClientClock::default(),
            #[cfg(feature = "testing")]
            Self::Tokio => return Self::on_runtime(GivenClock::Tokio),
            #[cfg(feature = "testing")]
            Self::Ahead(clock) => ClientClock::of_test(GivenClock::Ahead(clock.clone())),
            #[cfg(test)]
            Self::Slept(slept) => {
                return Self::on_runtime(|runtime| GivenClock::Slept(runtime, Arc::clone(slept)));
            }
        };
        let thread = ClientThread::start().map_err(|error| LockError::Unavailable {
            action: "start the lock client's thread".to_owned(),
            waited: Duration::ZERO,
            source: Arc::new(error),
        })?;
        Ok((thread, clock))
    }
}

#[cfg(feature = "testing")]
impl super::LockClientBuilder {
    pub(crate) fn with_clock(mut self, clock: ClockOption) -> Self {
        self.clock = clock;
        self
    }
}

#[cfg(feature = "testing")]
impl ClockOption {
    /// Checks whether the leases of this store can end by the clock.
    pub(super) fn check(&self, endpoint: &Endpoint) -> Result<(), LockError> {
        match (self, endpoint) {
            (_, Endpoint::Memory(_)) => Ok(()),
            (Self::Tokio, _) => Err(no_tokio_clock(
                "a server's leases end by its own clock; use the embedded store, or leave the option out",
            )),
            _ => Ok(()),
        }
    }

    fn on_runtime(
        clock: impl FnOnce(tokio::runtime::Handle) -> GivenClock,
    ) -> Result<(ClientThread, ClientClock), LockError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            no_tokio_clock(
                "there is no Tokio runtime here; make the client inside one, as in `#[tokio::test]`",
            )
        })?;
        let clock = ClientClock::of_test(clock(runtime.clone()));
        Ok((ClientThread::on_clock_of(runtime), clock))
    }
}

#[cfg(feature = "testing")]
fn no_tokio_clock(reason: &str) -> LockError {
    LockError::invalid_option("use_tokio_clock", "true", reason)
}
