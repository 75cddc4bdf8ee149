//! Lists that nearly always have one element, which then needs no allocation.

use smallvec::SmallVec;

/// A list that needs no allocation for one element.
pub type Few<T> = SmallVec<[T; 1]>;

/// Returns a list of one element. `from_elem` would clone it.
pub fn one<T>(element: T) -> Few<T> {
    SmallVec::from_buf([element])
}
