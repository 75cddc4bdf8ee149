//! `LostCause`: why a lock was lost.

/// The reason why a hold is no longer valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum LostCause {
    /// The store no longer has the lock, because it expired there, or was deleted, evicted or flushed.
    #[error("the store no longer has it (expired, deleted, evicted or flushed there)")]
    Removed,
    /// The lease ended before a renewal or, without the watchdog, an extension was confirmed. A lock that was handed off
    /// has a lease of only one second until its first renewal. The log line `lock lost` names the lease.
    #[error("its lease ended without a confirmed renewal")]
    Expired,
    /// The hold reached its `max_hold`.
    #[error("it reached its `max_hold`")]
    MaxHold,
    /// Another client revoked the lock with `revoke`, or took it with `release_if` or `force_release`.
    #[error("another client revoked it, or took it")]
    Revoked,
    /// The client was shut down.
    #[error("its lock client was shut down")]
    Closed,
    /// The hold was released: its call ended, or its guard was released or dropped.
    ///
    /// Only a `CurrentHold` reports this cause, because it can outlive its call: its `lost` resolves to it, and its
    /// `guard` fails with it. The client does not log it.
    #[error("its call has ended, or its guard was released")]
    Released,
}
