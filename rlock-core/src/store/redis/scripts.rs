//! Puts the Lua scripts together from their files, with the constants and the hash by which servers know them.

use std::time::Duration;

use redis::Pipeline;
use rlock_proto::store::{
    BETWEEN_PROBES, FENCES_A_SECOND, GRACE, LONGEST_SILENCE, MOST_LET_IN, MOST_NOTIFIED,
    MOST_SHOWN, QUEUE_LIFETIME, TOO_LARGE_FENCE, UNTIL_NOTIFIED,
};

macro_rules! lua {
    ($name:expr) => {
        include_str!(concat!("scripts/", $name, ".lua"))
    };
}

/// Defines the scripts. Each may begin with a file for the usual case, and may use parts of the library.
macro_rules! scripts {
    ($($name:ident: [$($first:literal)?] [$($part:literal)*],)*) => {
        pub(super) struct Scripts {
            $(pub(super) $name: Script,)*
        }

        impl Scripts {
            pub(super) fn new() -> Self {
                Self {
                    $($name: Script::new(&text(
                        concat!($(lua!($first))?),
                        concat!($(lua!($part)),*),
                        lua!(stringify!($name)),
                    )),)*
                }
            }

            pub(super) fn all(&self) -> impl Iterator<Item = &Script> {
                [$(&self.$name),*].into_iter()
            }
        }

        /// Returns the text of the script with this name.
        #[must_use]
        pub fn script(name: &str) -> Option<String> {
            let scripts = Scripts::new();
            match name {
                $(stringify!($name) => Some(scripts.$name.text),)*
                _ => None,
            }
        }
    };
}

scripts! {
    acquire: ["acquire_free"] ["fences" "holders" "waiters"],
    set_count: [] [],
    downgrade: [] ["fences" "holders" "waiters"],
    release: [] ["fences" "holders" "waiters"],
    renew: [] ["fences" "holders"],
    restore: [] ["fences" "holders"],
    inspect: [] [],
}

/// Puts a script together. The library is one function, which a script calls only if it needs it, because Lua takes time to
/// create each function, and each variable that a function captures. So the library captures no variable from outside.
fn text(first: &str, parts: &str, script: &str) -> String {
    // Not all constants, because a table of more than 32 fields would take longer to create.
    let constants = if parts.is_empty() {
        format!("MOST_SHOWN = {MOST_SHOWN}")
    } else {
        constants()
    };
    format!(
        "{first}\nlocal function library()\nlocal lib = {{{constants}}}\n{parts}\nreturn lib\nend\n{script}"
    )
}

/// Returns whole milliseconds, the unit of the server.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the numbers of the protocol as fields of the library's table. Times are texts in milliseconds, because the server
/// would format each number among the arguments of a command with `printf`.
fn constants() -> String {
    let times = [
        ("GRACE", GRACE),
        ("QUEUE_LIFETIME", QUEUE_LIFETIME),
        ("LONGEST_SILENCE", LONGEST_SILENCE),
        ("BETWEEN_PROBES", BETWEEN_PROBES),
        ("UNTIL_NOTIFIED", UNTIL_NOTIFIED),
    ];
    let times = times.map(|(name, time)| format!("{name} = '{}', ", millis(time)));
    format!(
        "{}MOST_LET_IN = {MOST_LET_IN}, MOST_NOTIFIED = {MOST_NOTIFIED}, \
         SECOND = {FENCES_A_SECOND}, TOO_LARGE = {TOO_LARGE_FENCE}",
        times.concat()
    )
}

/// A script, and the hash by which servers know it.
pub(super) struct Script {
    pub(super) hash: String,
    pub(super) text: String,
}

impl Script {
    /// Removes comments and most spaces, and adds the first line, with which Dragonfly lets the script touch keys that it does not
    /// declare. The text has to be short, because a server that has not seen the password closes a connection that sends an
    /// argument of more than 16 KiB, instead of asking for the password.
    fn new(text: &str) -> Self {
        let lines = text.lines().map(str::trim_start);
        let code = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
        let lines: Vec<&str> = ["--!df flags=allow-undeclared-keys"]
            .into_iter()
            .chain(code)
            .collect();
        let spaced = [
            ", ", " = ", " == ", " ~= ", " .. ", " + ", " - ", " < ", " > ", " >= ", " <= ", " * ",
            " / ", "] ", ") and", ") do", ") or", ") then", "' and", "' or", "' then",
        ];
        let text = spaced.into_iter().fold(lines.join("\n"), |text, spaced| {
            text.replace(spaced, &spaced.replace(' ', ""))
        });
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { hash, text }
    }
}

impl Scripts {
    /// Adds the commands that load all scripts.
    pub(super) fn load(&self, commands: &mut Pipeline) {
        for script in self.all() {
            commands.cmd("SCRIPT").arg("LOAD").arg(&script.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_takes_each_script_from_a_user_that_has_not_logged_in() {
        for script in Scripts::new().all() {
            let length = script.text.len();
            assert!((400..16 * 1024).contains(&length), "{length}");
            let first = script.text.lines().next();
            assert_eq!(first, Some("--!df flags=allow-undeclared-keys"));
            assert_eq!(script.text.matches("--").count(), 1, "the only comment");
        }
    }
}
