//! Short lists that nearly always have one element, which then needs no allocation.

use smallvec::SmallVec;

/// A list that needs no allocation for one element.
pub type Few<T> = SmallVec<[T; 1]>;

/// Returns a list of one element. `from_elem` would clone it.
pub fn one<T>(element: T) -> Few<T> {
    SmallVec::from_buf([element])
}

/// Collects a list. One element is moved without the loop of `collect`, which grows a list.
pub fn collect<T>(mut elements: impl ExactSizeIterator<Item = T>) -> Few<T> {
    if elements.len() == 1
        && let Some(element) = elements.next()
    {
        return one(element);
    }
    elements.collect()
}
