//! Lists the options of the attribute, with a description and an example of each, and rejects unknown ones.

use crate::names::{list, nearest};

const TIME: &str = "a duration, as a string or as an expression of type `Duration`";

/// Defines the options: the name of each, a description of its values, and an example.
macro_rules! options {
    ($($option:ident: $name:literal, $takes:expr, $form:literal;)+) => {
        /// An option of the attribute.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum LockOption {
            $($option,)+
        }

        impl LockOption {
            pub(crate) const ALL: &[Self] = &[$(Self::$option,)+];

            fn row(self) -> (&'static str, &'static str, &'static str) {
                match self {
                    $(Self::$option => ($name, $takes, $form),)+
                }
            }
        }
    };
}

options! {
    Key: "key", "a string literal or a list of them", "key = \"order:<id>\"";
    Shared: "shared", "no value", "shared";
    Permits: "permits", "an integer or an expression of type `u32`", "permits = 3";
    Take: "take", "an integer or an expression of type `u32`", "permits = 8, take = 3";
    Lease: "lease", TIME, "lease = \"30s\"";
    Wait: "wait", TIME, "wait = \"5s\"` or `wait = \"forever\"";
    Watchdog: "watchdog", "`true`, `false` or an expression of type `bool`", "watchdog = false";
    MaxHold: "max_hold", TIME, "max_hold = \"10min\"";
    MinHold: "min_hold", TIME, "min_hold = \"10s\"";
    Retain: "retain", TIME, "retain = \"200ms\"";
    IfTaken: "if_taken", "an expression of the return type", "if_taken = Ok(false)";
    OnError: "on_error", "a function from `LockError` to the return type", "on_error = |error| Outcome::Skipped";
    OnLost: "on_lost", "`\"cancel\"` or `\"continue\"`", "on_lost = \"continue\"";
    Guard: "guard", "a name for a variable of the body", "guard = lock";
    Client: "client", "an expression that is a `LockClient` or leads to one", "client = self.locks";
    AllowFutureOutput: "allow_future_output", "`true` or `false`", "allow_future_output = true";
    Crate: "crate", "a path to `rlock_core`", "crate = ::my_crate::rlock_core";
}

impl LockOption {
    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }

    pub(crate) fn takes(self) -> &'static str {
        self.row().1
    }

    pub(crate) fn form(self) -> &'static str {
        self.row().2
    }

    /// Finds the option of this name. The error names the option that was probably meant.
    pub(crate) fn of(written: &str) -> Result<Self, String> {
        let names = || Self::ALL.iter().map(|option| option.name());
        if let Some(option) = Self::ALL.iter().find(|option| option.name() == written) {
            return Ok(*option);
        }
        // The names that other libraries use.
        let meant = match written {
            "ttl" | "expire" | "expiry" | "lock_at_most_for" => Some("lease"),
            "timeout" | "wait_timeout" | "acquire_timeout" => Some("wait"),
            "name" => Some("key"),
            "lock_at_least_for" => Some("min_hold"),
            "read" | "reader" | "read_only" => Some("shared"),
            "limit" | "concurrency" | "max_concurrency" => Some("permits"),
            "weight" | "units" => Some("take"),
            "hold" | "lock" | "bind" | "binding" => Some("guard"),
            "skip" | "on_taken" | "on_contention" => Some("if_taken"),
            "fallback" | "fail" => Some("on_error"),
            _ => nearest(written, names()),
        };
        let meant = meant.map_or_else(String::new, |meant| format!(", did you mean `{meant}`?"));
        let options = list(names());
        Err(format!(
            "unknown option `{written}`{meant} (the options are {options})"
        ))
    }
}

#[cfg(test)]
#[path = "options/tests.rs"]
mod tests;
