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
    /// Tolerates holders of permits, as long as there are at most this many.
    Permits(u32),
}

impl LockMode {
    /// Returns whether a call in this mode may enter a hold of its own call chain in the `outer` mode.
    #[must_use]
    pub fn fits_inside(self, outer: Self) -> bool {
        match outer {
            Self::Exclusive => true,
            Self::Shared => self == Self::Shared,
            Self::Permits(_) => matches!(self, Self::Permits(_)),
        }
    }

    /// Returns whether a hold in this mode may use a lock that the store granted in the `granted` mode.
    #[must_use]
    pub(crate) fn fits_grant(self, granted: Self) -> bool {
        match self {
            Self::Exclusive => granted == Self::Exclusive,
            Self::Shared => matches!(granted, Self::Exclusive | Self::Shared),
            Self::Permits(_) => false,
        }
    }

    /// Returns the value of a label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permits(_) => "permits",
        }
    }
}

/// Writes `exclusive`, `shared` or, for a permit, `one of 3 permits`.
impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permits(1) => f.write_str("the only permit"),
            Self::Permits(permits) => write!(f, "one of {permits} permits"),
            mode => f.write_str(mode.as_str()),
        }
    }
}
