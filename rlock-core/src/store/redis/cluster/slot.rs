//! Which part of a cluster a lock belongs to.

use crc::{CRC_16_XMODEM, Crc};

use crate::key::Key;

/// How many there are.
pub(super) const SLOTS: u16 = 16_384;

const CHECKSUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// One of the parts into which a cluster divides its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot(u16);

impl Slot {
    /// Where all that belongs to the lock of this key lies: the names share the hash tag that the key
    /// brings, or the whole key as one.
    pub(super) fn of(key: &Key) -> Self {
        let key = key.as_str();
        let tag = key
            .split_once('{')
            .and_then(|(_, tagged)| tagged.split_once('}'))
            .map_or(key, |(tag, _)| tag);
        Self::of_tag(tag)
    }

    fn of_tag(tag: &str) -> Self {
        Self(CHECKSUM.checksum(tag.as_bytes()) % SLOTS)
    }

    pub(super) fn number(self) -> u16 {
        self.0
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_that_servers_count() {
        // As `CLUSTER KEYSLOT` answers for `lock:{order:42}` and for `lock:{a}:x}`.
        for (key, slot) in [
            ("a", 15_495),
            ("b", 3_300),
            ("c", 7_365),
            ("123456789", 12_739),
        ] {
            for key in [key.to_owned(), format!("x{{{key}}}y"), format!("{{{key}}}")] {
                let key = Key::parse(&key).expect("valid");
                assert_eq!(Slot::of(&key).number(), slot, "{key}");
            }
        }
    }
}
