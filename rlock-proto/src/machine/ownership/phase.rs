//! The phases of an ownership, and which one may follow another.
//!
//! | phase | next phases |
//! | --- | --- |
//! | `Asking`: no hold has begun | `Held` when one begins, `Ended` when it is given up |
//! | `Held` | `HandedOver` to the next local call, `Retained`, `Lost` (entries may remain), `Ended` |
//! | `HandedOver`: no hold | `Held` when the next hold begins, `Ended` |
//! | `Retained`: no hold | `HandedOver` to the next local call, `Lost`, `Ended` |
//! | `Lost`: not renewed | `Ended` |
//! | `Ended`: to be released, or released | none |

use super::release::Release;
use crate::{lease::Time, machine::hold::Hold};

/// The state of an ownership, with the data of that state.
///
/// The record of a hold stays when the hold has ended. Another client may name its token, and observers see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Status {
    /// The client asks for the lock, and no hold has begun.
    Asking,
    /// The client has the lock, for the present hold or after the last one.
    Owned(Hold, Purpose),
    /// The client no longer relies on the lock, and waits for the entries of the hold.
    Lost(Hold),
    /// The lock is being released, or is released. Perhaps no hold has begun.
    Ended(Option<Hold>, Release),
}

/// What the client has the lock for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    Hold,
    /// The next call, which has the turn.
    NextCall,
    /// A later call, until then.
    Retention(Time),
}

/// The phase of an ownership: its state without the data. The module draws the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The client asks for the lock, or a message has granted it and no hold has begun.
    Asking,
    /// A hold has left the lock to the next call of the client.
    HandedOver,
    /// A hold uses the lock.
    Held,
    /// The client keeps the lock for its next call.
    Retained,
    /// The client no longer relies on the lock.
    Lost,
    /// The lock is being released, or is released.
    Ended,
}

impl Phase {
    /// Returns whether the next hold is to come: the call with the turn asks for the lock, or has it.
    #[must_use]
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Asking | Self::HandedOver)
    }

    /// Returns whether an ownership in this phase may enter the next one.
    fn may_become(self, next: Self) -> bool {
        use Phase::{Asking, Ended, HandedOver, Held, Lost, Retained};
        match self {
            Asking | HandedOver => matches!(next, Held | Ended),
            Held => matches!(next, HandedOver | Retained | Lost | Ended),
            Retained => matches!(next, HandedOver | Lost | Ended),
            Lost => matches!(next, Ended),
            Ended => false,
        }
    }
}

impl Status {
    pub(super) fn phase(&self) -> Phase {
        match self {
            Self::Asking => Phase::Asking,
            Self::Owned(_, Purpose::Hold) => Phase::Held,
            Self::Owned(_, Purpose::NextCall) => Phase::HandedOver,
            Self::Owned(_, Purpose::Retention(_)) => Phase::Retained,
            Self::Lost(_) => Phase::Lost,
            Self::Ended(..) => Phase::Ended,
        }
    }

    pub(super) fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Owned(hold, _) | Self::Lost(hold) => Some(hold),
            Self::Ended(hold, _) => hold.as_ref(),
            Self::Asking => None,
        }
    }

    pub(super) fn hold_mut(&mut self) -> Option<&mut Hold> {
        match self {
            Self::Owned(hold, _) | Self::Lost(hold) => Some(hold),
            Self::Ended(hold, _) => hold.as_mut(),
            Self::Asking => None,
        }
    }

    pub(super) fn release(&self) -> Option<&Release> {
        match self {
            Self::Ended(_, release) => Some(release),
            _ => None,
        }
    }

    pub(super) fn release_mut(&mut self) -> Option<&mut Release> {
        match self {
            Self::Ended(_, release) => Some(release),
            _ => None,
        }
    }

    /// Begins a hold.
    pub(super) fn begin(&mut self, hold: Hold) {
        self.change(|status| *status = Self::Owned(hold, Purpose::Hold));
    }

    /// Keeps the lock for this.
    pub(super) fn serve(&mut self, next: Purpose) {
        self.change(|status| {
            if let Self::Owned(_, purpose) = status {
                *purpose = next;
            }
        });
    }

    /// Stops relying on the lock, whose hold has entries that have to leave.
    pub(super) fn lose(&mut self) {
        self.change(|status| {
            *status = match std::mem::replace(status, Self::Asking) {
                Self::Owned(hold, _) => Self::Lost(hold),
                status => status,
            }
        });
    }

    pub(super) fn end(&mut self, release: Release) {
        self.change(|status| {
            let hold = match std::mem::replace(status, Self::Asking) {
                Self::Asking => None,
                Self::Owned(hold, _) | Self::Lost(hold) => Some(hold),
                Self::Ended(hold, _) => hold,
            };
            *status = Self::Ended(hold, release);
        });
    }

    /// Enters another phase. No other function does.
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let was = self.phase();
        change(self);
        debug_assert!(was.may_become(self.phase()), "from {was:?}: {self:?}");
    }
}
