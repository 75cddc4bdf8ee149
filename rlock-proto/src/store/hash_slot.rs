//! Which hash slot of a cluster a key belongs to.

use crc::{CRC_16_XMODEM, Crc};

use crate::key::Key;

/// The slot of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashSlot(pub u16);

impl HashSlot {
    /// The number of slots of a cluster.
    pub const COUNT: u16 = 16_384;

    /// Returns the slot of all names on the server for the lock of this key. They share the key's hash tag, or have the whole
    /// key as one.
    #[must_use]
    pub fn of(key: &Key) -> Self {
        const CHECKSUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
        let key = key.as_str();
        let tag = key
            .split_once('{')
            .and_then(|(_, tagged)| tagged.split_once('}'))
            .map_or(key, |(tag, _)| tag);
        Self(CHECKSUM.checksum(tag.as_bytes()) % Self::COUNT)
    }

    /// Returns the place of the slot in a list of all of them.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_slots_are_those_of_redis() {
        // As `CLUSTER KEYSLOT` replies for the names of these locks.
        for (key, slot) in [
            ("a", 15_495),
            ("b", 3_300),
            ("c", 7_365),
            ("123456789", 12_739),
        ] {
            for key in [key.to_owned(), format!("x{{{key}}}y"), format!("{{{key}}}")] {
                let key = Key::parse(&key).expect("valid");
                assert_eq!(HashSlot::of(&key).index(), slot, "{key}");
            }
        }
    }
}
