//! Orders the keys of a lock: as they were given for its user, and ascending for the store.

use std::collections::HashMap;

use rlock_proto::{few::Few, key::Key, mode::LockMode};

use crate::engine::entry::EntryGuard;

/// Sorts the keys. Also returns the place of each given key among them, unless the keys were given in this order.
pub(super) fn ascending(given: Few<(Key, LockMode)>) -> (Few<(Key, LockMode)>, Option<Vec<usize>>) {
    let key = |at: usize| given[at].0.as_str();
    if (1..given.len()).all(|at| key(at - 1) < key(at)) {
        return (given, None);
    }
    let mut ascending: Vec<usize> = (0..given.len()).collect();
    ascending.sort_unstable_by_key(|at| key(*at));
    let mut order = vec![0; given.len()];
    for (place, at) in ascending.iter().enumerate() {
        order[*at] = place;
    }
    let ascending = ascending.iter().map(|at| given[*at].clone()).collect();
    (ascending, Some(order))
}

/// Puts entries into the order in which their keys were given.
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
