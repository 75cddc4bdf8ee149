//! Holders are inside a lock together only if their modes tolerate each other, and take no more permits than there are.
//!
//! The rules do not use those of the product, so that both cannot have the same bug.

use super::Holder;
use crate::mode::LockMode;

/// Returns the holders inside that a hold which begins does not tolerate.
pub fn excluded<'a, H: Holder + 'a>(
    next: &H,
    inside: impl IntoIterator<Item = &'a H>,
) -> impl Iterator<Item = &'a H> {
    let others = inside.into_iter().filter(|other| !other.is_same(next));
    others.filter(|other| !tolerates(next.mode(), other.mode()))
}

/// Returns whether a hold which begins takes more permits than the holders inside leave.
pub fn takes_too_many<'a, H: Holder + 'a>(
    next: &H,
    inside: impl IntoIterator<Item = &'a H>,
) -> bool {
    let LockMode::Permits { take, of } = next.mode() else {
        return false;
    };
    let others = inside.into_iter().filter(|other| !other.is_same(next));
    let taken = others.map(|other| taken(other.mode())).sum::<u32>();
    take + taken > of
}

/// Returns whether a nested call in this mode may enter a hold in the `outer` mode.
#[must_use]
pub fn may_enter(nested: LockMode, outer: LockMode) -> bool {
    outer == LockMode::Exclusive || tolerates(nested, outer) && taken(nested) <= taken(outer)
}

fn tolerates(one: LockMode, other: LockMode) -> bool {
    use LockMode::{Permits, Shared};
    matches!(
        (one, other),
        (Shared, Shared) | (Permits { .. }, Permits { .. })
    )
}

fn taken(mode: LockMode) -> u32 {
    match mode {
        LockMode::Permits { take, .. } => take,
        _ => 0,
    }
}
