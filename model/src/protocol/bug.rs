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
    /// A lease counts from the answer.
    LeaseFromReply,
    /// A lock that was handed on counts from the message.
    LeaseFromMessage,
    /// A message of a grant that the server has refused since is believed.
    LateMessageBelieved,
    /// The watchdog goes on after the release.
    RenewsAfterRelease,
    /// A late answer revives a hold whose lease has ended.
    RevivedByAnswer,
    /// A renewal that is answered "not held" changes nothing.
    LossIgnored,
    /// An owner is used for every hold of a client.
    OwnerReused,
    /// A waiter relies on messages alone.
    NoTimer,
    /// Whoever gives up tells nobody.
    NoCompensation,
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
    /// Answers to renewals do not tell a client that its lock is wanted. No mistake by itself: waiters ask
    /// again.
    WantedUnread,
    /// A client never learns that a lock is wanted but by the first message.
    WantedUnnoticed,
    /// A client serves its own callers although others wait.
    BudgetIgnored,
    /// What is retained can be used while it is released.
    RetainedWhileReleased,
    /// A client that shuts down keeps what it retains.
    RetainedAfterShutDown,
}
