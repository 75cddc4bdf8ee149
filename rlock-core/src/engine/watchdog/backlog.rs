//! Detects that the store still works through earlier renewals.

use std::time::Duration;

use crate::lease::Time;

/// The latest reply to a renewal. The store replies in the order of sending.
///
/// A renewal without a reply is not sent again while the store replies to earlier ones: an overloaded
/// server would never catch up. If the store stops replying, the renewal is sent again.
pub(super) struct Backlog {
    /// When the newest renewal that has a reply was sent.
    sent: Time,
    replied: Time,
}

impl Default for Backlog {
    fn default() -> Self {
        Self {
            sent: Time::from_nanos(0),
            replied: Time::from_nanos(0),
        }
    }
}

impl Backlog {
    /// Records the reply to a renewal.
    pub(super) fn replied(&mut self, sent: Time, now: Time) {
        self.sent = self.sent.max(sent);
        self.replied = now;
    }

    /// Returns whether the store may still reply to a renewal sent at `sent`: the latest reply is not
    /// older than `silence`, and no later renewal has a reply.
    pub(super) fn has(&self, sent: Time, now: Time, silence: Duration) -> bool {
        sent >= self.sent && now.since(self.replied) < silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_renewal_is_queued_while_earlier_ones_get_replies_and_no_later_one_did() {
        const SILENCE: Duration = Duration::from_millis(10);
        let mut backlog = Backlog::default();
        assert!(!backlog.has(at(100), at(105), SILENCE), "no reply yet");
        backlog.replied(at(90), at(104));
        assert!(backlog.has(at(100), at(105), SILENCE));
        assert!(!backlog.has(at(100), at(114), SILENCE), "the replies stop");
        backlog.replied(at(101), at(114));
        assert!(!backlog.has(at(100), at(115), SILENCE), "it was skipped");
        assert!(backlog.has(at(102), at(115), SILENCE));
    }
}
