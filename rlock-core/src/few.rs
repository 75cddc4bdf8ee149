//! Lists that nearly always have one element, which then needs no allocation.

use smallvec::SmallVec;

pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// Returns a list of one element. `from_elem` would clone it.
pub(crate) fn one<T>(element: T) -> Few<T> {
    SmallVec::from_buf([element])
}
