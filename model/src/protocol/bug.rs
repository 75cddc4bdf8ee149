//! Bugs that the checker has to find, except those that are marked as no bugs by themselves.

use crate::server::ServerBug;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A bug of the server.
    Server(ServerBug),
    /// A bug of the clients.
    Client(ClientBug),
}

/// A bug of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientBug {
    /// A lease counts from the reply.
    LeaseFromReply,
    /// The lease of a handed-off lock counts from the notification.
    LeaseFromNotification,
    /// A notification of a grant that has ended is accepted.
    LateNotificationAccepted,
    /// The watchdog renews after the release.
    RenewsAfterRelease,
    /// A late reply revives a hold whose lease has ended.
    RevivedByReply,
    /// A client uses the same owner for every hold.
    OwnerReused,
    /// A waiter relies on notifications alone.
    NoTimer,
    /// A caller that gives up does not leave the wait queue.
    NeverLeavesQueue,
    /// A hold is handed over after the lease ended.
    HandOverAfterLease,
    /// A hold is handed over although the server's count is in doubt.
    HandOverInDoubt,
    /// An ownership is handed over although its loss is known.
    LostHandedOver,
    /// A holder that was asked to release hands its ownership over locally.
    RevokedHandedOver,
    /// The tokens of a lost ownership are used by the next one.
    TokensOfLost,
    /// The tokens of a released ownership are used by the next one.
    TokensOfReleased,
    /// A release that finds nothing counts as done although the lease had ended when the earlier one was sent.
    DoneAfterLease,
    /// A client ignores in a renewal that its lock is wanted. Not a bug by itself: waiters retry.
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
