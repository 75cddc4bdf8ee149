//! Lists that nearly always have one element, which then needs no allocation.

use smallvec::SmallVec;

pub(crate) type Few<T> = SmallVec<[T; 1]>;
