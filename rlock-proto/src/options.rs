//! The options of a lock, with their defaults: lease, wait, `min_hold`, `max_hold`, retention.

use std::{
    hash::{Hash, Hasher},
    time::Duration,
};

use crate::mode::LockMode;

/// How long a call waits for its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Sends one request and does not wait.
    Never,
    /// Waits for this long.
    For(Duration),
    /// Waits without a limit.
    Forever,
}

impl Wait {
    /// Returns whether a call asks once and does not wait.
    #[must_use]
    pub fn is_none(self) -> bool {
        matches!(self, Self::Never | Self::For(Duration::ZERO))
    }
}

/// Where and how a lock is taken, for observers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Site {
    label: &'static str,
    /// The mode that the site asks for.
    pub mode: LockMode,
    /// Returns the path of an item inside the annotated function, if there is one.
    local: Option<fn() -> &'static str>,
}

/// Sites with one label are the same.
impl PartialEq for Site {
    fn eq(&self, other: &Self) -> bool {
        self.label == other.label
    }
}

impl Eq for Site {}

impl Hash for Site {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.label.hash(state);
    }
}

impl Site {
    /// Returns the site of locks with this label.
    #[must_use]
    pub const fn new(label: &'static str) -> Self {
        Self {
            label,
            mode: LockMode::Exclusive,
            local: None,
        }
    }

    /// Returns the site of an annotated function. `local` returns the path of an item inside it.
    pub const fn in_function(label: &'static str, local: fn() -> &'static str) -> Self {
        Self {
            local: Some(local),
            ..Self::new(label)
        }
    }

    /// Returns the site in this mode.
    #[must_use]
    pub fn in_mode(self, mode: LockMode) -> Self {
        Self { mode, ..self }
    }

    /// Returns the label, or this text if the lock has none.
    #[must_use]
    pub fn label_or(self, other: &'static str) -> &'static str {
        match self.label {
            "" => other,
            label => label,
        }
    }

    /// Returns the text that takes the place of a hidden key.
    #[must_use]
    pub fn in_place_of_key(self) -> &'static str {
        self.label_or("<redacted>")
    }

    /// Returns the path of the annotated function: `svc::Orders::reserve`.
    #[must_use]
    pub fn function(self) -> Option<String> {
        let (function, _) = (self.local?)().rsplit_once("::")?;
        // The body of an `async fn` is a closure.
        Some(function.replace("::{{closure}}", ""))
    }
}

/// The options of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockOptions {
    /// The mode of all keys that name none.
    pub mode: LockMode,
    /// How long the store keeps the lock without a renewal.
    pub lease: Duration,
    /// How long a call waits for the lock.
    pub wait: Wait,
    /// Whether the lease is renewed while the lock is held.
    pub watchdog: bool,
    /// The longest hold.
    pub max_hold: Option<Duration>,
    /// How long the lock stays taken from the start of a hold that succeeds.
    pub min_hold: Option<Duration>,
    /// How long the client keeps the lock for its next call.
    pub retain: Duration,
    /// Where the lock is taken.
    pub site: Site,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            mode: LockMode::Exclusive,
            lease: Duration::from_secs(30),
            wait: Wait::For(Duration::from_secs(10)),
            watchdog: true,
            max_hold: None,
            min_hold: None,
            retain: Duration::ZERO,
            site: Site::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_known_by_its_label_and_hides_a_key_behind_it() {
        let path = || "svc::Orders::reserve::{{closure}}::here";
        let site = Site::in_function("reserve", path).in_mode(LockMode::Shared);
        assert!(site == Site::new("reserve") && site != Site::default());
        assert_eq!(site.mode, LockMode::Shared);
        assert_eq!(site.in_place_of_key(), "reserve");
        assert_eq!(Site::default().in_place_of_key(), "<redacted>");
        assert_eq!(site.function().as_deref(), Some("svc::Orders::reserve"));
    }
}
