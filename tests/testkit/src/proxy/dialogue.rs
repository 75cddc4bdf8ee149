//! What a client and its server say on one connection, in the protocol that the client's first bytes show.

use super::{Request, pending::Pending, postgres::Session, resp};

/// The beginning of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// A whole message of this many bytes.
    Whole(usize),
    /// The beginning of a message.
    Partial,
    /// Of no known protocol, such as TLS.
    Foreign,
}

/// What a message is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The reply to this request, or the last part of it.
    Answer(Request),
    /// A part of a reply, or a message without a request.
    Other,
}

/// The protocol, and the requests without a reply.
#[derive(Debug)]
pub(super) enum Dialogue {
    Redis(Pending),
    Postgres(Session),
}

impl Default for Dialogue {
    fn default() -> Self {
        Self::Redis(Pending::default())
    }
}

impl Dialogue {
    /// Finds the end of the first message from the client.
    pub(super) fn scan_request(&mut self, bytes: &[u8]) -> Scan {
        // Only the first message of Postgres has no kind, and begins with its length.
        if matches!(self, Self::Redis(_)) && bytes.first() == Some(&0) {
            *self = Self::Postgres(Session::default());
        }
        match self {
            Self::Redis(_) => resp::scan_request(bytes),
            Self::Postgres(session) => session.scan_request(bytes),
        }
    }

    /// Finds the end of the first message from the server.
    pub(super) fn scan_reply(&self, bytes: &[u8]) -> Scan {
        match self {
            Self::Redis(_) => resp::scan_reply(bytes),
            Self::Postgres(session) => session.scan_reply(bytes),
        }
    }

    /// Reads a message from the client.
    pub(super) fn sent(&mut self, message: &[u8]) -> Request {
        match self {
            Self::Redis(pending) => {
                let words = resp::words(message);
                pending.sent(Request { words })
            }
            Self::Postgres(session) => session.sent(message),
        }
    }

    /// Reads a message from the server.
    pub(super) fn received(&mut self, message: &[u8]) -> Meaning {
        match self {
            Self::Redis(pending) => pending.received(message),
            Self::Postgres(session) => session.received(message),
        }
    }
}
