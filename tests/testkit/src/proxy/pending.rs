//! Matches the replies of Redis with their requests.

use std::collections::VecDeque;

use super::{
    Request,
    dialogue::{Dialogue, Meaning, Scan},
    resp,
};

/// The requests of one connection without a reply, in order.
#[derive(Debug, Default)]
pub(super) struct Pending {
    waiting: VecDeque<Waiting>,
    /// In RESP2 a subscriber's messages look like replies.
    subscribed: bool,
    resp3: bool,
}

#[derive(Debug)]
struct Waiting {
    request: Request,
    /// The confirmations that are still missing: a subscription gets one for each channel.
    confirmations: usize,
}

impl Dialogue for Pending {
    fn scan_request(&mut self, bytes: &[u8]) -> Scan {
        resp::scan_request(bytes)
    }

    fn scan_reply(&self, bytes: &[u8]) -> Scan {
        resp::scan_reply(bytes)
    }

    fn sent(&mut self, message: &[u8]) -> Request {
        let words = resp::words(message);
        let request = Request { words };
        let mut confirmations = 0;
        if request.is("HELLO") {
            self.resp3 |= request.words.get(1).is_some_and(|version| version == b"3");
        } else if is_subscription(request.name().as_bytes()) {
            self.subscribed = true;
            confirmations = request.words.len().saturating_sub(1).max(1);
        }
        self.waiting.push_back(Waiting {
            request: request.clone(),
            confirmations,
        });
        request
    }

    fn received(&mut self, message: &[u8]) -> Meaning {
        let push = message.first() == Some(&b'>');
        let head = resp::head(message).unwrap_or_default();
        let Some(front) = self.waiting.front_mut() else {
            return Meaning::Other;
        };

        // Confirmations are replies to subscriptions, although RESP3 sends them as pushes.
        if is_subscription(&head) && front.request.name().as_bytes().eq_ignore_ascii_case(&head) {
            front.confirmations = front.confirmations.saturating_sub(1);
            if front.confirmations > 0 {
                return Meaning::Other;
            }
        } else if push || (self.subscribed && !self.resp3 && is_message(&head)) {
            return Meaning::Other;
        }
        self.waiting
            .pop_front()
            .map_or(Meaning::Other, |waiting| Meaning::Answer(waiting.request))
    }
}

fn is_subscription(word: &[u8]) -> bool {
    const NAMES: [&[u8]; 4] = [b"SUBSCRIBE", b"UNSUBSCRIBE", b"PSUBSCRIBE", b"PUNSUBSCRIBE"];
    NAMES.iter().any(|name| name.eq_ignore_ascii_case(word))
}

fn is_message(word: &[u8]) -> bool {
    [b"message".as_slice(), b"pmessage"].contains(&word)
}
