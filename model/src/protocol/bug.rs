//! Mistakes that the checker has to find.

use crate::server::ServerBug;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// Of the server.
    Server(ServerBug),
    /// Of the clients.
    Client(ClientBug),
}

/// Mistakes that a client could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientBug {
    /// A lease counts from the reply.
    LeaseFromReply,
    /// The lease of a handed-off lock counts from the notification.
    LeaseFromNotification,
    /// A notification of a grant that has ended is accepted.
    LateNotificationAccepted,
    /// The watchdog goes on after the release.
    RenewsAfterRelease,
    /// A late reply revives a hold whose lease has ended.
    RevivedByReply,
    /// The reply to a renewal that the lock is not held changes nothing.
    LossIgnored,
    /// An owner is used for every hold of a client.
    OwnerReused,
    /// A waiter relies on notifications alone.
    NoTimer,
    /// A caller that gives up does not leave the wait queue.
    NeverLeavesQueue,
    /// A hold is handed over after the lease ended.
    HandOverAfterLease,
    /// A hold is handed over while the server's count may be another, and the doubt is forgotten.
    HandOverInDoubt,
    /// An ownership that is known to be lost is handed over.
    LostHandedOver,
    /// A holder that was asked to release hands its ownership over locally.
    RevokedHandedOver,
    /// Tokens of an ownership that was lost are used by the next one.
    BlockOfLost,
    /// Tokens of an ownership that was released are used by the next one.
    BlockOfReleased,
    /// A client does not read from a renewal that its lock is wanted. No bug by itself: waiters ask again.
    WantedUnread,
    /// A client learns only from the first notification that its lock is wanted.
    WantedUnnoticed,
    /// A client makes any number of local hand-overs while other clients wait.
    HandoversUnlimited,
    /// A retained ownership is used while it is released.
    RetainedWhileReleased,
    /// A client that shuts down does not release a retained ownership.
    RetainedAfterShutDown,
}
