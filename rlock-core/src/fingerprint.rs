//! A short hash of some text, which all clients compute alike, whichever compiler has built them.

/// Returns a hash of these bytes, by FNV-1a.
pub(crate) fn fingerprint(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
