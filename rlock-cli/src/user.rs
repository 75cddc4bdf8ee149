//! Names the user on whose behalf `rlock` runs, for the logs of holders.

use std::env;

use nix::unistd::{Uid, User};

/// The longest name that is sent.
const LONGEST: usize = 64;

/// Returns the name of the user, who may have become another by `sudo`.
pub(crate) fn name() -> String {
    let uid = Uid::current();
    let sudo = env::var("SUDO_USER").ok();
    let name = sudo.filter(|name| uid.is_root() && !name.is_empty());
    let name = name.or_else(|| Some(User::from_uid(uid).ok()??.name));
    let name = name.unwrap_or_else(|| uid.to_string());
    name.chars().take(LONGEST).collect()
}
