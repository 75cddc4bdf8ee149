//! Just enough of the protocol of Postgres to see where requests and replies end, and what they mention.

use std::collections::VecDeque;

use super::{
    Request,
    dialogue::{Dialogue, Meaning, Scan},
};

/// The code in a first message by which a client asks for TLS.
const TLS: [u8; 4] = 80_877_103_u32.to_be_bytes();
/// The message that ends the parts of a request.
const SYNC: [u8; 5] = *b"S\0\0\0\x04";
/// The message by which the server is ready for the next request, without its last byte.
const READY: [u8; 5] = *b"Z\0\0\0\x05";

/// The requests of one session without a reply, in order.
#[derive(Debug, Default)]
pub(super) struct Session {
    has_begun: bool,
    is_encrypted: bool,
    waiting: VecDeque<Request>,
}

impl Dialogue for Session {
    fn scan_request(&mut self, bytes: &[u8]) -> Scan {
        self.is_encrypted |= !self.has_begun && bytes.get(4..8) == Some(&TLS);
        if self.is_encrypted {
            return Scan::Foreign;
        }
        if self.has_begun {
            return up_to(bytes, |kind, _| b"QSXp".contains(&kind));
        }
        match length(bytes) {
            Some(length) if length <= bytes.len() => Scan::Whole(length),
            _ => Scan::Partial,
        }
    }

    fn scan_reply(&self, bytes: &[u8]) -> Scan {
        if self.is_encrypted {
            return Scan::Foreign;
        }
        let is_apart = bytes.first().is_some_and(|kind| b"ANR".contains(kind));
        up_to(bytes, |kind, text| {
            // With a fatal error the server ends the session.
            let is_fatal = || text.windows(7).any(|field| field == b"\0VFATAL");
            is_apart || kind == b'Z' || kind == b'E' && is_fatal()
        })
    }

    fn sent(&mut self, group: &[u8]) -> Request {
        // Its texts between numbers, of which a text of more than 31 bytes keeps one in front.
        let texts = group.split(|byte| !(b' '..0x7f).contains(byte));
        let words = texts.filter(|text| !text.is_empty());
        let words = words.map(<[u8]>::to_vec).collect();
        let request = Request { words };
        // Neither a password nor the end of the session has a reply of its own.
        if !self.has_begun || group[0] == b'Q' || group.ends_with(&SYNC) {
            self.waiting.push_back(request.clone());
        }
        self.has_begun = true;
        request
    }

    fn received(&mut self, message: &[u8]) -> Meaning {
        let is_reply = (message.split_last()).is_some_and(|(_, rest)| rest.ends_with(&READY));
        let answered = is_reply.then(|| self.waiting.pop_front()).flatten();
        answered.map_or(Meaning::Other, Meaning::Answer)
    }
}

/// Finds the end of the first message that `ends` a group, by its kind and its text.
fn up_to(bytes: &[u8], ends: impl Fn(u8, &[u8]) -> bool) -> Scan {
    let mut rest = bytes;
    while let Some((kind, after)) = rest.split_first()
        && let Some((message, after)) = length(after).and_then(|end| after.split_at_checked(end))
    {
        rest = after;
        if ends(*kind, message) {
            return Scan::Whole(bytes.len() - rest.len());
        }
    }
    Scan::Partial
}

/// Returns the number at the beginning, which is the length of what begins there.
fn length(bytes: &[u8]) -> Option<usize> {
    let number = bytes.first_chunk()?;
    Some(u32::from_be_bytes(*number) as usize)
}
