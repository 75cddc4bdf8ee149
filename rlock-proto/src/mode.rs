//! The lock mode (exclusive, shared or permits), and which mode may be nested inside another.

use std::fmt;

/// The mode of a lock: exclusive, shared or permits.
///
/// Waiters of all modes are served from one queue in the order in which they came, so neither readers nor writers
/// starve, except on a quorum. Tokio's `RwLock` works in a similar way: it is a semaphore whose writers take all
/// permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum LockMode {
    /// Tolerates no other holder.
    #[default]
    Exclusive,
    /// Tolerates other shared holders.
    Shared,
    /// Tolerates holders of permits, as long as all of them together take no more than there are.
    Permits {
        /// How many permits the call takes.
        take: u32,
        /// How many permits there are.
        of: u32,
    },
}

impl LockMode {
    /// Returns whether a call in this mode may enter a hold of its own call chain in the `outer` mode.
    #[must_use]
    pub fn fits_inside(self, outer: Self) -> bool {
        match outer {
            Self::Exclusive => true,
            Self::Shared => self == Self::Shared,
            Self::Permits { take: held, .. } => {
                matches!(self, Self::Permits { take, .. } if take <= held)
            }
        }
    }

    /// Returns how many permits a holder in this mode takes.
    #[must_use]
    pub fn permits_taken(self) -> u32 {
        self.permits().map_or(0, |(take, _)| take)
    }

    /// Returns whether a hold in this mode may use a lock that the store granted in the `granted` mode.
    #[must_use]
    pub(crate) fn fits_grant(self, granted: Self) -> bool {
        match self {
            Self::Exclusive => granted == Self::Exclusive,
            Self::Shared => matches!(granted, Self::Exclusive | Self::Shared),
            Self::Permits { .. } => false,
        }
    }

    /// Returns how many permits a holder in this mode takes, and of how many, or `None` if the mode has none.
    #[must_use]
    pub fn permits(self) -> Option<(u32, u32)> {
        match self {
            Self::Permits { take, of } => Some((take, of)),
            _ => None,
        }
    }

    /// Returns the mode of a call that goes by this number of permits if it names fewer.
    #[must_use]
    pub(crate) fn of_at_least(self, most: u32) -> Self {
        match self {
            Self::Permits { take, of } => Self::Permits {
                take,
                of: of.max(most),
            },
            mode => mode,
        }
    }

    /// Returns whether a call in the `named` mode may ask in this one, which is the same or has more permits to take from.
    #[must_use]
    pub(crate) fn may_stand_for(self, named: Self) -> bool {
        named.of_at_least(self.permits().map_or(0, |(_, of)| of)) == self
    }

    /// Returns the value of a label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permits { .. } => "permits",
        }
    }
}

/// Writes `exclusive`, `shared` or, for permits, `one of 3 permits` or `2 of 3 permits`.
impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permits { of: 1, .. } => f.write_str("the only permit"),
            Self::Permits { take: 1, of } => write!(f, "one of {of} permits"),
            Self::Permits { take, of } if take == of => write!(f, "all {of} permits"),
            Self::Permits { take, of } => write!(f, "{take} of {of} permits"),
            mode => f.write_str(mode.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LockMode::*, *};

    #[test]
    fn modes_are_shown_in_words() {
        let permits = |take, of| Permits { take, of }.to_string();
        assert_eq!(
            [Exclusive, Shared].map(|mode| mode.to_string()),
            ["exclusive", "shared"]
        );
        assert_eq!(
            (&*permits(1, 1), &*permits(1, 3)),
            ("the only permit", "one of 3 permits")
        );
        assert_eq!(
            (&*permits(3, 3), &*permits(2, 3)),
            ("all 3 permits", "2 of 3 permits")
        );
        assert_eq!(Permits { take: 2, of: 3 }.as_str(), "permits");
    }

    #[test]
    fn no_hold_uses_a_lock_of_a_weaker_mode_and_permits_are_not_shared() {
        let all = [Exclusive, Shared, Permits { take: 1, of: 3 }];
        let granted = |mode: LockMode| all.map(|granted| mode.fits_grant(granted));
        assert_eq!(granted(Exclusive), [true, false, false]);
        assert_eq!(granted(Shared), [true, true, false]);
        assert_eq!(granted(all[2]), [false; 3]);
    }
}
