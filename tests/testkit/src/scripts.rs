//! The library's scripts, for tests that call them directly.

use redis::Script;

macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!(
            "../../../rlock-core/src/store/redis/scripts/",
            $name,
            ".lua"
        ))
    };
}

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
        Self {
            acquire: Script::new(concat!(lua!("library"), lua!("acquire"))),
            set_count: Script::new(concat!(lua!("library"), lua!("set_count"))),
            downgrade: Script::new(concat!(lua!("library"), lua!("downgrade"))),
            release: Script::new(concat!(lua!("library"), lua!("release"))),
            renew: Script::new(concat!(lua!("library"), lua!("renew"))),
            restore: Script::new(concat!(lua!("library"), lua!("restore"))),
            inspect: Script::new(lua!("inspect")),
        }
    }
}
