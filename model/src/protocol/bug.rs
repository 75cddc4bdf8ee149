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
}
