//! The order of a lock's keys: as they were given for its user, and ascending for the store.

use std::{collections::HashMap, sync::Arc};

use rlock_proto::{few::Few, key::Key};

use crate::engine::entry::EntryGuard;

/// The place of each key of a guard among the ascending keys, unless the guard has them in that order, too.
pub(super) type KeyOrder = Option<Arc<Vec<usize>>>;

/// The keys of a lock, checked.
#[derive(Clone)]
pub(super) struct CheckedKeys {
    /// The keys in ascending order.
    pub(super) ascending: Few<(Key, bool)>,
    pub(super) order: KeyOrder,
}

impl CheckedKeys {
    pub(super) fn new(given: Few<(Key, bool)>) -> Self {
        let key = |at: usize| given[at].0.as_str();
        if (1..given.len()).all(|at| key(at - 1) < key(at)) {
            return Self {
                ascending: given,
                order: None,
            };
        }
        let mut ascending: Vec<usize> = (0..given.len()).collect();
        ascending.sort_unstable_by_key(|at| key(*at));
        let mut order = vec![0; given.len()];
        for (place, at) in ascending.iter().enumerate() {
            order[*at] = place;
        }
        Self {
            ascending: ascending.iter().map(|at| given[*at].clone()).collect(),
            order: Some(Arc::new(order)),
        }
    }
}

/// Puts entries into the order of [`CheckedKeys`].
pub(super) fn in_order(mut entries: Few<EntryGuard>, order: Option<&[usize]>) -> Few<EntryGuard> {
    if entries.len() == 1 {
        return entries;
    }
    entries.sort_unstable_by(|one, other| one.key().cmp(other.key()));
    let Some(order) = order else {
        return entries;
    };
    let mut ascending: Vec<_> = entries.into_iter().map(Some).collect();
    let given = order.iter().filter_map(|place| ascending[*place].take());
    given.collect()
}

/// Returns the keys, each once. One that is named twice is not shared, unless it is shared both times.
pub(super) fn unique(keys: Few<(String, bool)>) -> Few<(String, bool)> {
    if keys.len() == 1 {
        return keys;
    }
    let mut unique = Few::<(String, bool)>::new();
    let mut places = HashMap::new();
    for (key, is_shared) in keys {
        if let Some(place) = places.get(&key) {
            let named: &mut (String, bool) = &mut unique[*place];
            named.1 &= is_shared;
        } else {
            places.insert(key.clone(), unique.len());
            unique.push((key, is_shared));
        }
    }
    unique
}
