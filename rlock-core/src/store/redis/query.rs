//! What stands behind the `?` of a URL.

use super::{hosts::are_meant, sentinel};

/// How servers are spoken to.
const PROTOCOL: &str = "protocol";

/// Everything between `?` and `#` of a URL.
fn options(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    pairs(query.split('#').next().unwrap_or(""))
}

/// Each name, and what it is set to.
fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// What an option is set to; empty, if it is not there.
pub(super) fn option<'a>(query: &'a str, name: &str) -> &'a str {
    let mut options = pairs(query);
    let found = options.find(|(key, _)| *key == name);
    found.map_or("", |(_, value)| value)
}

pub(super) fn wants_resp2(url: &str) -> bool {
    options(url).any(|option| matches!(option, (PROTOCOL, "resp2" | "2")))
}

fn known(url: &str) -> &'static [&'static str] {
    if are_meant(url, sentinel::KIND) {
        &[PROTOCOL, "sentinel_user", "sentinel_password"]
    } else if !is_socket(url) {
        &[PROTOCOL]
    } else {
        &[PROTOCOL, "db", "user", "pass"]
    }
}

fn is_socket(url: &str) -> bool {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    matches!(scheme, "unix" | "redis+unix" | "valkey+unix")
}

/// What to say of an option that would be passed over in silence. It is counted, not named: it may be part
/// of a password.
pub(super) fn unknown(url: &str) -> Option<String> {
    let known = known(url);
    let mut names = options(url).map(|(name, _)| name);
    let number = names.position(|name| !known.contains(&name))? + 1;
    let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let hint = if is_socket(url) {
        ""
    } else {
        "; a database stands in the path (`redis://host/3`), times are set by `LockClient::builder()`"
    };
    let known = known.join(", ");
    Some(format!(
        "option {number} behind the `?` is not known; known are {known}{hint}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_nobody_reads_are_refused_and_not_shown() {
        for (url, number) in [
            ("redis://h/?db=3", 1),
            ("redis://h/?protocol=resp3&s3cret", 2),
            ("unix:///redis.sock?db=3&pass=x&s3cret=1", 3),
            ("redis-sentinel://h/orders?sentinel_pasword=s3cret", 1),
            ("redis-cluster://h/?&sentinel_user=s3cret", 1),
        ] {
            let said = unknown(url).expect(url);
            assert!(said.starts_with(&format!("option {number} ")), "{said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
        for url in [
            "redis://u:s3cret@h/3",
            "rediss://h?protocol=2",
            "redis://h/?",
            "unix:///redis.sock?db=3&user=u&pass=s3cret&protocol=resp2",
            "redis-sentinel://h/orders/3?sentinel_user=u&sentinel_password=p&protocol=3",
            "redis-cluster://h/?protocol=resp2#",
        ] {
            assert_eq!(unknown(url), None, "{url}");
        }
    }

    #[test]
    fn the_older_protocol_may_be_asked_for() {
        assert!(
            wants_resp2("redis://h/?protocol=resp2") && wants_resp2("unix:///s?db=1&protocol=2")
        );
        assert!(!wants_resp2("redis://h/") && !wants_resp2("redis://h/?protocol=3"));
    }
}
