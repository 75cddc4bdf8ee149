//! The library's scripts, for tests that call them directly.

use redis::Script;

/// One script of each kind.
pub struct Scripts {
    /// Acquires one lock or several.
    pub acquire: Script,
    /// Sets the count of an owner.
    pub set_count: Script,
    /// Shares an exclusive lock.
    pub downgrade: Script,
    /// Releases one lock.
    pub release: Script,
    /// Extends leases.
    pub renew: Script,
    /// Restores locks at a member of a quorum.
    pub restore: Script,
    /// Reads a lock.
    pub inspect: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        Self::new()
    }
}

impl Scripts {
    /// Creates scripts that no server has loaded yet.
    #[must_use]
    pub fn new() -> Self {
        let script = |name| Script::new(&script_text(name));
        Self {
            acquire: script("acquire"),
            set_count: script("set_count"),
            downgrade: script("downgrade"),
            release: script("release"),
            renew: script("renew"),
            restore: script("restore"),
            inspect: script("inspect"),
        }
    }
}

/// Returns the text of the script with this name.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
pub fn script_text(name: &str) -> String {
    rlock_core::__private::script(name).unwrap_or_else(|| panic!("no script is called {name}"))
}
