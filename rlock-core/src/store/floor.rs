//! The largest fence that this client has seen, which every new grant exceeds even if the server's clock steps back.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rlock_proto::store::{FENCES_A_SECOND, TOO_LARGE_FENCE, fence_at};

use crate::clock::wall_clock_micros;

/// How far ahead of this client's clock a fence may be.
const AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest fence that a client has seen at its store. It passes it with its acquires, so that tokens grow although the
/// server has forgotten the key's last fence and its clock has stepped back.
#[derive(Debug, Default)]
pub(crate) struct Floor(AtomicU64);

impl Floor {
    /// Notes a fence of the store. One that is far ahead of this client's clock is ignored, because it would spread to all
    /// keys.
    pub(crate) fn note(&self, fence: u64) {
        if fence > self.0.load(Ordering::Relaxed) && fence < limit() {
            self.0.fetch_max(fence, Ordering::Relaxed);
        }
    }

    /// Returns the least fence of the next grant, less a second. The server compares its clock with that, because the latest fence
    /// that a client with quick replies has seen is hardly behind the clock.
    pub(in crate::store) fn next(&self) -> u64 {
        (self.0.load(Ordering::Relaxed) + 1).saturating_sub(FENCES_A_SECOND)
    }
}

fn limit() -> u64 {
    let ahead = u64::try_from(AHEAD.as_micros()).unwrap_or(u64::MAX);
    fence_at(wall_clock_micros().saturating_add(ahead)).min(TOO_LARGE_FENCE - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_above_the_largest_fence_that_is_near_the_clock() {
        let (floor, now) = (Floor::default(), fence_at(wall_clock_micros()));
        assert_eq!(floor.next(), 0);
        let hours = |number: u64| now + number * 3_600 * FENCES_A_SECOND;
        for (fence, next) in [
            (now, now + 1),
            (now - 1, now + 1),
            (hours(23), hours(23) + 1),
            (hours(25), hours(23) + 1),
            (TOO_LARGE_FENCE - 1, hours(23) + 1),
        ] {
            floor.note(fence);
            assert_eq!(floor.next(), next - FENCES_A_SECOND);
        }
    }
}
