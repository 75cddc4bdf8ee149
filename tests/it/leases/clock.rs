//! A clock that the test moves, so that renewals are due and leases end without waiting.

use std::time::Duration;

use rlock_core::{
    LockClient, LockClientBuilder,
    testing::{Clock, use_clock},
};

use crate::common::LONG;

/// A lease that outlasts every limit of a test, so only a move of the clock makes a renewal due or
/// ends the lease.
pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);

/// Connects a client with a clock of its own.
pub(crate) async fn connect(url: &str) -> (Clock, LockClient) {
    connect_as(crate::common::builder(), url).await
}

pub(crate) async fn connect_as(builder: LockClientBuilder, url: &str) -> (Clock, LockClient) {
    let clock = Clock::new();
    let builder = use_clock(builder, &clock)
        .connect_timeout(LONG)
        .default_lease(HOUR)
        .default_wait(LONG);
    let client = builder.connect(url).await;
    (clock, client.expect("the store is there"))
}
