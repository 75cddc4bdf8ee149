//! Situations that must occur in a world, so that its exploration proves something.

use std::{
    hash::{Hash, Hasher},
    sync::atomic::{AtomicU32, Ordering},
};

/// Defines each situation, with its text.
macro_rules! situations {
    ($($name:ident = $text:literal,)+) => {
        /// A situation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Situation {
            $($name,)+
        }

        impl Situation {
            /// Returns what happens then.
            pub(super) fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

situations! {
    HandedOff = "a lock is handed off to another client",
    HandedOver = "a hold is handed over",
    TokenOfRenewal = "a hold has a token of a renewal",
    Nested = "a holder enters once more",
    Paused = "a client is paused for longer than its lease",
    StaleWrite = "a stale write arrives",
    RetainedAgain = "a retained ownership is used again",
    RetainedWanted = "a retained ownership is released when it is wanted",
    RetainedUntilEnd = "a retained ownership ends with its time",
    RetainedAsked = "a retained ownership is released when an operator asks",
    RetainedAtDrain = "a client that shuts down releases a retained ownership",
    MaxHold = "a hold ends with its `max_hold`",
    Kept = "a lock stays taken after its release",
    Several = "a call has several locks",
    Refused = "a call is refused because its wait has ended",
    Joined = "a call joins a shared hold",
    Together = "two clients hold a lock that they share",
    Behind = "a client asks again for a lock that it shares",
    Downgraded = "another client shares a lock that was exclusive before",
    Upgrade = "an exclusive call inside a shared hold is refused",
}

/// The situations of the latest step. Not part of the state: all values are equal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(u32);

impl Seen {
    pub(super) fn note(&mut self, situation: Situation) {
        self.0 |= 1 << situation as u32;
    }
}

impl PartialEq for Seen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Seen {}

impl Hash for Seen {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The situations of all steps so far. A step counts although another one has led to the same state before.
#[derive(Debug, Default)]
pub(super) struct Occurred(AtomicU32);

impl Occurred {
    pub(super) fn add(&self, seen: Seen) {
        self.0.fetch_or(seen.0, Ordering::Relaxed);
    }

    pub(super) fn has(&self, situation: Situation) -> bool {
        self.0.load(Ordering::Relaxed) & 1 << situation as u32 != 0
    }
}
