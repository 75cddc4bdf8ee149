//! The library's scripts as it puts them together, to be called without it.

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

/// One of each.
pub struct Scripts {
    /// Takes one lock or several.
    pub acquire: Script,
    /// Gives one lock back, or lowers its count.
    pub release: Script,
    /// Several of the usual kind, each by itself.
    pub acquire_batch: Script,
    /// The same for giving back.
    pub release_batch: Script,
    /// Extends leases.
    pub renew: Script,
    /// Reserves further tokens.
    pub extend: Script,
    /// Reads a lock.
    pub inspect: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        Self::new()
    }
}

impl Scripts {
    /// Not loaded anywhere yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            acquire: Script::new(concat!(lua!("library"), lua!("acquire"))),
            release: Script::new(concat!(lua!("library"), lua!("release"))),
            acquire_batch: Script::new(concat!(lua!("library"), lua!("acquire_batch"))),
            release_batch: Script::new(lua!("release_batch")),
            renew: Script::new(lua!("renew")),
            extend: Script::new(concat!(lua!("library"), lua!("extend"))),
            inspect: Script::new(lua!("inspect")),
        }
    }
}
