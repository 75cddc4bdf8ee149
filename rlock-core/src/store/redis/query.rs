//! What stands behind the `?` of a URL.

use crate::{redact::names, scheme::Kind};

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

fn known(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Socket => &[PROTOCOL, "db", "user", "pass"],
        Kind::Sentinels => &[PROTOCOL, "sentinel_user", "sentinel_password"],
        Kind::Memory | Kind::Server | Kind::Cluster => &[PROTOCOL],
    }
}

/// Finds an error in the options of a URL. redis-rs would ignore an unknown option.
pub(super) fn wrong(url: &str, kind: Kind) -> Option<String> {
    let protocol = options(url).find(|(name, _)| *name == PROTOCOL);
    if protocol.is_some_and(|(_, set)| !matches!(set, "resp2" | "2" | "resp3" | "3")) {
        return Some("`protocol` is `resp2` or `resp3`".to_owned());
    }
    let known = known(kind);
    let number = options(url).position(|(name, _)| !known.contains(&name))?;
    let query = url.split_once('?').map_or("", |(_, query)| query);
    // An option that may be part of a password is counted, not named.
    let unknown = match names(query).nth(number).flatten() {
        Some(name) => format!("option `{name}`"),
        None => format!("option {} behind the `?`", number + 1),
    };
    let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let known = known.join(", ");
    let elsewhere = match kind {
        Kind::Memory | Kind::Socket => "",
        Kind::Server => {
            "; a database stands in the path (`redis://host/3`), user and password before the host, \
             times are set by `LockClient::builder()`"
        }
        Kind::Sentinels => {
            "; a database stands behind the service, the master's user and password before the hosts, \
             times are set by `LockClient::builder()`"
        }
        Kind::Cluster => {
            "; user and password stand before the hosts, times are set by `LockClient::builder()`"
        }
    };
    Some(format!(
        "{unknown} is not known; known are {known}{elsewhere}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Scheme;

    fn wrong_in(url: &str) -> Option<String> {
        wrong(url, Scheme::of(url)?.kind)
    }

    #[test]
    fn options_that_nobody_reads_are_refused_and_named_if_they_are_no_password() {
        for (url, option) in [
            ("redis://h/?db=3", "option `db` "),
            ("redis://h/?protocol=resp3&s3cret", "option 2 "),
            ("unix:///redis.sock?db=3&pass=x&s3cret=1", "option 3 "),
            ("unix:///redis.sock?password=s3cret", "option `password` "),
            (
                "redis-sentinel://h/orders?sentinel_pasword=s3cret",
                "option `sentinel_pasword` ",
            ),
            (
                "redis-cluster://h/?&sentinel_user=s3cret",
                "option `sentinel_user` ",
            ),
            ("redis://h/?protocol=s3cret", "`protocol` is "),
        ] {
            let said = wrong_in(url).expect(url);
            assert!(said.starts_with(option), "{said}");
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
            assert_eq!(wrong_in(url), None, "{url}");
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
