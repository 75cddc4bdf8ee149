//! Sets the command's environment: its locks and their fencing tokens.

use std::{env, ffi::OsString, process::Command};

use rlock_core::Hold;

/// The variables to set, and those of an outer `rlock run` to remove.
pub(crate) struct Environment {
    set: Vec<(String, String)>,
    remove: Vec<OsString>,
}

/// The owners of the locks around the command: those of its `rlock run`, and of the outer ones.
const HELD: &str = "RLOCK_HELD";

/// Returns the owners of the locks of the outer `rlock run`s. Those hold the locks until this process has ended.
pub(crate) fn owners_around() -> Vec<String> {
    let held = env::var(HELD).unwrap_or_default();
    held.split_whitespace().map(str::to_owned).collect()
}

/// Returns the environment for these locks.
pub(crate) fn of(hold: &Hold) -> Environment {
    let mut set = vec![("RLOCK_KEYS".to_owned(), hold.keys().len().to_string())];
    for (number, key) in (1..).zip(hold.keys()) {
        set.extend(variables(hold, key, &format!("_{number}")));
    }
    set.extend(variables(hold, hold.key(), ""));
    let owners = hold.keys().filter_map(|key| hold.owner_of(key));
    let around: Vec<String> = owners_around().into_iter().chain(owners).collect();
    set.push((HELD.to_owned(), around.join(" ")));
    let inherited = env::vars_os().map(|(name, _)| name);
    Environment {
        set,
        remove: inherited.filter(is_numbered).collect(),
    }
}

fn variables(hold: &Hold, key: &str, suffix: &str) -> [(String, String); 3] {
    let token = hold.token_of(key).map(|token| token.to_string());
    let owner = hold.owner_of(key);
    [
        (format!("RLOCK_KEY{suffix}"), key.to_owned()),
        (format!("RLOCK_TOKEN{suffix}"), token.unwrap_or_default()),
        (format!("RLOCK_OWNER{suffix}"), owner.unwrap_or_default()),
    ]
}

/// Returns whether this is the variable of one lock among several.
fn is_numbered(name: &OsString) -> bool {
    let Some((start, number)) = name.to_str().and_then(|name| name.rsplit_once('_')) else {
        return false;
    };
    ["RLOCK_KEY", "RLOCK_TOKEN", "RLOCK_OWNER"].contains(&start)
        && number.bytes().all(|digit| digit.is_ascii_digit())
}

impl Environment {
    /// Adds variables that describe no lock.
    pub(crate) fn with(mut self, variables: &[(&'static str, String)]) -> Self {
        let variables = variables.iter();
        self.set
            .extend(variables.map(|(name, value)| ((*name).to_owned(), value.clone())));
        self
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        for name in &self.remove {
            command.env_remove(name);
        }
        for (name, value) in &self.set {
            command.env(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_one_lock_among_several_are_known_by_their_number() {
        for (name, expected) in [
            ("RLOCK_KEY_1", true),
            ("RLOCK_TOKEN_12", true),
            ("RLOCK_KEY", false),
            ("RLOCK_URL", false),
            ("RLOCK_KEY_NAME", false),
        ] {
            assert_eq!(is_numbered(&name.into()), expected, "{name}");
        }
    }
}
