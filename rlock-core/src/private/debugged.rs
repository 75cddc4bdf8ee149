//! Refuses values whose `Debug` has another order for an equal value, so that two calls would lock different keys.
//!
//! `debugged(&value).__rlock_ordered()` calls the method of the first step whose bounds hold, as the check of returned
//! futures does.

use std::{
    collections::{BinaryHeap, HashMap, HashSet, hash_map, hash_set},
    ops::Deref,
    rc::Rc,
    sync::Arc,
};

/// The value of a placeholder with `?`, at the first step of the check.
#[derive(Debug)]
pub struct Debugged<'a, T: ?Sized, const AT: usize>(Ordered<'a, T>);

/// The second step, for values of other types.
#[derive(Debug)]
pub struct Ordered<'a, T: ?Sized>(&'a T);

/// Starts the check of the placeholder at the character `AT` of a key.
#[must_use]
pub fn debugged<const AT: usize, T: ?Sized>(value: &T) -> Debugged<'_, T, AT> {
    Debugged(Ordered(value))
}

impl<'a, T: Unordered + ?Sized, const AT: usize> Debugged<'a, T, AT> {
    pub fn __rlock_ordered(&self) -> &'a T
    where
        T: HasOrder<AT>,
    {
        self.0.0
    }
}

impl<'a, T: ?Sized, const AT: usize> Deref for Debugged<'a, T, AT> {
    type Target = Ordered<'a, T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'a, T: ?Sized> Ordered<'a, T> {
    pub fn __rlock_ordered(&self) -> &'a T {
        self.0
    }
}

/// A collection without an order of its own, or a value that contains one.
pub trait Unordered {}

impl<T, S> Unordered for HashSet<T, S> {}
impl<K, V, S> Unordered for HashMap<K, V, S> {}
impl<T> Unordered for BinaryHeap<T> {}
impl<T> Unordered for hash_set::Iter<'_, T> {}
impl<K, V> Unordered for hash_map::Iter<'_, K, V> {}
impl<K, V> Unordered for hash_map::Keys<'_, K, V> {}
impl<K, V> Unordered for hash_map::Values<'_, K, V> {}
impl<T: Unordered + ?Sized> Unordered for &T {}
impl<T: Unordered + ?Sized> Unordered for &mut T {}
impl<T: Unordered + ?Sized> Unordered for Box<T> {}
impl<T: Unordered + ?Sized> Unordered for Rc<T> {}
impl<T: Unordered + ?Sized> Unordered for Arc<T> {}
impl<T: Unordered> Unordered for Option<T> {}
impl<T: Unordered> Unordered for Vec<T> {}
impl<T: Unordered> Unordered for [T] {}
impl<T: Unordered, const N: usize> Unordered for [T; N] {}

/// The requirement on an unordered value of a placeholder with `?`. No type implements it.
#[diagnostic::on_unimplemented(
    message = "the placeholder at character {AT} of the key takes a value with an order, and `{Self}` has none",
    label = "equal values of this type would be different keys",
    note = "take a `BTreeSet`, a `BTreeMap` or a sorted list, or write `<ids[]>` for a key of each element"
)]
pub trait HasOrder<const AT: usize> {}
