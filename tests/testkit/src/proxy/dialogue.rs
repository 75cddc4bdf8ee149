//! What a client and its server say on one connection, in the protocol that the client's first byte shows.

use super::{Request, pending::Pending, postgres::Session};

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

pub(super) trait Dialogue: Send {
    /// Finds the end of the first message from the client.
    fn scan_request(&mut self, bytes: &[u8]) -> Scan;

    /// Finds the end of the first message from the server.
    fn scan_reply(&self, bytes: &[u8]) -> Scan;

    /// Reads a message from the client.
    fn sent(&mut self, message: &[u8]) -> Request;

    /// Reads a message from the server.
    fn received(&mut self, message: &[u8]) -> Meaning;
}

/// Returns the dialogue that a client begins with these bytes.
pub(super) fn begun(bytes: &[u8]) -> Box<dyn Dialogue> {
    // Only the first message of Postgres has no kind, and begins with its length.
    if bytes.first() == Some(&0) {
        Box::new(Session::default())
    } else {
        Box::new(Pending::default())
    }
}
