//! The identity of an ownership, as text on the store: the client, a sequence number and the mode.

use std::fmt;

use uuid::Uuid;

use crate::mode::LockMode;

/// The identity under which a client owns a lock on the store: `<client uuid>:<sequence>`, never reused. Holds that
/// follow each other by local hand-overs have the same owner, but each hold has its own fencing token.
///
/// The text of a shared owner ends with `s`, that of the owner of one of eight permits with `.8p`, and that of the owner of
/// three of them with `.3.8p`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId {
    client: Uuid,
    sequence: u64,
    mode: LockMode,
}

impl OwnerId {
    /// The owner of an exclusive lock that stays taken for its `min_hold` after its release.
    pub const KEPT: Self = Self {
        client: Uuid::max(),
        sequence: u64::MAX,
        mode: LockMode::Exclusive,
    };
    /// The text of [`KEPT`](Self::KEPT), as `release.lua` writes it.
    const KEPT_TEXT: &'static str = "kept";
    /// The bit of a sequence number that marks a released owner whose lock is kept.
    const KEPT_BIT: u64 = 1 << 63;

    /// Returns the owner of the lock that stays taken after this owner's release.
    #[must_use]
    pub fn kept(self) -> Self {
        match self.mode {
            LockMode::Exclusive => Self::KEPT,
            _ => Self {
                sequence: self.sequence | Self::KEPT_BIT,
                ..self
            },
        }
    }

    /// Returns whether the owner has released the lock, and only `min_hold` keeps it.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.sequence & Self::KEPT_BIT != 0
    }

    /// Returns the owner with this number at this client.
    #[must_use]
    pub fn new(client: Uuid, sequence: u64, mode: LockMode) -> Self {
        Self {
            client,
            sequence,
            mode,
        }
    }

    /// Parses the output of `Display`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == Self::KEPT_TEXT {
            return Some(Self::KEPT);
        }
        if let Some(owner) = text.strip_prefix("kept:") {
            return Some(Self::parse(owner)?.kept());
        }
        let (client, rest) = text.rsplit_once(':')?;
        let (sequence, mode) = match (rest.strip_suffix('s'), rest.strip_suffix('p')) {
            (Some(sequence), _) => (sequence, LockMode::Shared),
            (_, Some(rest)) => {
                let (sequence, permits) = rest.split_once('.')?;
                let (take, of) = permits.split_once('.').unwrap_or(("1", permits));
                let (take, of) = (take.parse().ok()?, of.parse().ok()?);
                (sequence, LockMode::Permits { take, of })
            }
            _ => (rest, LockMode::Exclusive),
        };
        Some(Self {
            client: client.parse().ok()?,
            sequence: sequence.parse().ok()?,
            mode,
        })
    }

    /// Returns the owner of the exclusive lock that this owner may have had before it shared the lock.
    #[must_use]
    pub fn before_downgrade(self) -> Option<Self> {
        let former = Self {
            mode: LockMode::Exclusive,
            ..self
        };
        (self.mode == LockMode::Shared).then_some(former)
    }

    /// Returns the mode in which the owner has or asked for its lock.
    #[must_use]
    pub fn mode(&self) -> LockMode {
        self.mode
    }

    /// Returns the client of the owner.
    #[must_use]
    pub fn client(&self) -> Uuid {
        self.client
    }

    /// Returns whether the owner belongs to this client.
    #[must_use]
    pub fn is_of(&self, client: Uuid) -> bool {
        self.client == client
    }

    /// Returns the number that identifies the owner within its client.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::KEPT {
            return f.write_str(Self::KEPT_TEXT);
        }
        let sequence = self.sequence & !Self::KEPT_BIT;
        let kept = if self.is_kept() { "kept:" } else { "" };
        write!(f, "{kept}{}:{sequence}", self.client)?;
        match self.mode {
            LockMode::Exclusive => Ok(()),
            LockMode::Shared => f.write_str("s"),
            LockMode::Permits { take: 1, of } => write!(f, ".{of}p"),
            LockMode::Permits { take, of } => write!(f, ".{take}.{of}p"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shared_owner_may_have_been_an_exclusive_one_before() {
        let [exclusive, shared] = [LockMode::Exclusive, LockMode::Shared]
            .map(|mode| OwnerId::new(Uuid::from_u128(7), 3, mode));
        assert_eq!(shared.before_downgrade(), Some(exclusive));
        assert_eq!(exclusive.before_downgrade(), None);
        assert!(shared.is_of(Uuid::from_u128(7)) && !shared.is_of(Uuid::from_u128(8)));
        assert_eq!((shared.sequence(), shared.mode()), (3, LockMode::Shared));
        assert_eq!(exclusive.kept(), OwnerId::KEPT);
    }

    #[test]
    fn owners_are_read_as_they_are_written() {
        let client = Uuid::from_u128(7);
        for (mode, end) in [
            (LockMode::Exclusive, "3"),
            (LockMode::Shared, "3s"),
            (LockMode::Permits { take: 1, of: 12 }, "3.12p"),
            (LockMode::Permits { take: 5, of: 12 }, "3.5.12p"),
        ] {
            let owner = OwnerId::new(client, 3, mode);
            assert_eq!(owner.to_string(), format!("{client}:{end}"));
            assert_eq!(OwnerId::parse(&owner.to_string()), Some(owner));
            let kept = owner.kept();
            assert!(kept.is_kept() && !owner.is_kept() && kept.kept() == kept);
            assert_eq!(OwnerId::parse(&kept.to_string()), Some(kept));
        }
        for text in ["", "kept:", "x:3", "3s", "3.p", "3..8p", "3.1.2.8p"] {
            assert_eq!(OwnerId::parse(text), None, "{text}");
            assert_eq!(OwnerId::parse(&format!("{client}:{text}x")), None, "{text}");
        }
    }
}
