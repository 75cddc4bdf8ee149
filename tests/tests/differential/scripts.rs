//! The scripts as the library puts them together.

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

pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) release: Script,
    pub(crate) acquire_together: Script,
    pub(crate) release_together: Script,
    pub(crate) renew: Script,
    pub(crate) inspect: Script,
    /// Lets time go by on the server.
    pub(crate) time: Script,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            acquire: Script::new(concat!(
                lua!("acquire_free"),
                lua!("grant"),
                lua!("acquire")
            )),
            release: Script::new(concat!(
                lua!("release_free"),
                lua!("grant"),
                lua!("release")
            )),
            acquire_together: Script::new(lua!("acquire_together")),
            release_together: Script::new(lua!("release_together")),
            renew: Script::new(lua!("renew")),
            inspect: Script::new(lua!("inspect")),
            time: Script::new(include_str!("time.lua")),
        }
    }
}
