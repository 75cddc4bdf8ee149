//! Names the keys of a lock, checks them, and orders them: as they were given for its user, and ascending for the store.

use std::collections::HashMap;

use rlock_proto::{
    few::Few,
    key::Key,
    machine::WantedLock,
    mode::LockMode,
    options::{LockOptions, Site},
};

use crate::{engine::entry::EntryGuard, error::LockError};

/// A key as it was named for a lock, before it is checked.
#[derive(Clone, Debug)]
pub(crate) struct NamedKey {
    text: String,
    /// Whether its lock is shared, whatever the mode of the others.
    is_shared: bool,
    /// What it was rendered from.
    template: Option<&'static str>,
}

impl NamedKey {
    /// Returns a key whose lock has the mode of the others.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_shared: false,
            template: None,
        }
    }

    /// Returns a key whose lock is shared.
    pub(crate) fn shared(text: impl Into<String>) -> Self {
        Self {
            is_shared: true,
            ..Self::new(text)
        }
    }

    /// Returns the key with the template that it was rendered from.
    pub(crate) fn rendered_from(self, template: &'static str) -> Self {
        Self {
            template: Some(template),
            ..self
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text that takes the place of the key if it is hidden, in a lock of this site.
    pub(super) fn instead(&self, site: Site) -> &'static str {
        self.template.unwrap_or_else(|| site.in_place_of_key())
    }

    /// Checks the key. Returns its lock, for calls with these options.
    pub(super) fn wanted(
        &self,
        options: &LockOptions,
        is_hidden: bool,
    ) -> Result<WantedLock, LockError> {
        let instead = is_hidden.then(|| self.instead(options.site));
        let key = Key::parse_hidden(&self.text, instead);
        Ok(WantedLock {
            key: key.map_err(LockError::of_key)?,
            mode: if self.is_shared {
                LockMode::Shared
            } else {
                options.mode
            },
        })
    }
}

/// Sorts the keys. Also returns the place of each given key among them, unless the keys were given in this order.
pub(super) fn ascending(given: Few<WantedLock>) -> (Few<WantedLock>, Option<Vec<usize>>) {
    let key = |at: usize| given[at].key.as_str();
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
pub(super) fn unique(keys: Few<NamedKey>) -> Few<NamedKey> {
    if keys.len() == 1 {
        return keys;
    }
    let mut unique = Few::<NamedKey>::new();
    let mut places = HashMap::new();
    for key in keys {
        if let Some(place) = places.get(&key.text) {
            let first: &mut NamedKey = &mut unique[*place];
            first.is_shared &= key.is_shared;
        } else {
            places.insert(key.text.clone(), unique.len());
            unique.push(key);
        }
    }
    unique
}
