//! The parts of a URL that errors may show: scheme, hosts, ports, database and names of options.
//!
//! Users, passwords and values of options are hidden, and so is each part of a malformed URL that
//! may be one of these.

use super::parts::{Kind, Parts, names};
use crate::escape_control::breaks_the_line;

/// Replaces each hidden part.
const HIDDEN: &str = "…";

/// Returns the URL without its secrets.
pub(crate) fn redacted(url: &str) -> String {
    let Some(parts) = Parts::of(url) else {
        return unknown_scheme(url);
    };
    let shown = match parts.kind {
        Kind::Memory if !parts.has_slashes => embedded(&parts),
        Kind::Socket => socket(&parts),
        kind => hosts(&parts, kind),
    };
    let shown = shown.as_deref().unwrap_or(HIDDEN);
    format!("{}:{shown}", parts.scheme)
}

/// Hides all but the scheme. Without a known scheme, the text before the colon may be a user or a
/// password.
fn unknown_scheme(url: &str) -> String {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    match url.split_once("://") {
        Some((scheme, _)) if scheme.chars().all(letters) && !url.contains('@') => {
            format!("{scheme}:{HIDDEN}")
        }
        _ if url.is_empty() => String::new(),
        _ => HIDDEN.to_owned(),
    }
}

/// Returns `name[?options][#…]`, or `None` if the name may contain a login.
fn embedded(parts: &Parts<'_>) -> Option<String> {
    let fragment = parts.fragment.map_or("", |_| "#…");
    let is_name = parts.path.chars().all(is_of_name);
    is_name.then(|| format!("{}{}{fragment}", parts.path, options(parts.query)))
}

/// Returns `//path[?options]`, or `None` if the path may contain a login.
fn socket(parts: &Parts<'_>) -> Option<String> {
    let path = parts.path;
    let has_login = !parts.login.is_empty() || !parts.hosts.is_empty() || path.contains('@');
    let is_path = path.starts_with('/') && !path.contains(breaks_the_line);
    let slashes = if parts.has_slashes { "//" } else { "" };
    (is_path && !has_login && parts.fragment.is_none())
        .then(|| format!("{slashes}{path}{}", options(parts.query)))
}

/// Returns `//login@host[:port],…[/path][?options]`, or `None` if another part may contain a login.
fn hosts(parts: &Parts<'_>, kind: Kind) -> Option<String> {
    if !parts.has_slashes || parts.tail.contains(['@', '#']) {
        return None;
    }
    let are_hosts = match kind {
        Kind::Sentinels | Kind::Cluster => parts.hosts.split(',').all(is_host),
        _ => is_host(parts.hosts),
    };
    if !are_hosts && parts.login.is_empty() {
        // This may be a login whose password continues after the next `/` or `?`.
        return Some(format!("//{HIDDEN}"));
    }
    let hosts = if are_hosts { parts.hosts } else { HIDDEN };
    let login = if parts.login.is_empty() { "" } else { "…@" };
    let is_path = |c: char| match kind {
        Kind::Sentinels => is_of_name(c) || c == '/',
        _ => c.is_ascii_digit() || c == '/',
    };
    let path = if parts.path.chars().all(is_path) {
        parts.path
    } else {
        "/…"
    };
    Some(format!("//{login}{hosts}{path}{}", options(parts.query)))
}

/// Returns whether this is a host, with or without a port. A port may be too large, but not too
/// long.
fn is_host(text: &str) -> bool {
    let in_brackets = text.strip_prefix('[');
    let in_brackets = in_brackets.and_then(|rest| rest.split_once(']'));
    let (is_name, port) = if let Some((name, port)) = in_brackets {
        let is_of_address = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '.');
        (name.chars().all(is_of_address), port)
    } else {
        let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        (name.chars().all(is_of_name), port)
    };
    let port = port.strip_prefix(':').unwrap_or(port);
    is_name && port.len() < 6 && port.chars().all(|c| c.is_ascii_digit())
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

/// Returns `?name=…&name=…`.
fn options(query: &str) -> String {
    let shown =
        names(query).map(|name| name.map_or(HIDDEN.to_owned(), |name| format!("{name}={HIDDEN}")));
    match shown.collect::<Vec<_>>().join("&") {
        none if none.is_empty() => none,
        shown => format!("?{shown}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_ports_databases_and_names_of_options_are_shown() {
        for (url, shown) in [
            ("redis://h:99999/", "redis://h:99999/"),
            ("redis://u:s3cret@h:99999/3", "redis://…@h:99999/3"),
            ("redis://h:6379/x", "redis://h:6379/…"),
            ("redis://one,two", "redis://…"),
            ("redis://h/?db=3", "redis://h/?db=…"),
            ("rediss://u:s3cret@[::1]:7/", "rediss://…@[::1]:7/"),
            ("valkey://u@h:1", "valkey://…@h:1"),
            ("redis://", "redis://"),
            ("redis://u:s3cret@", "redis://…@"),
            (
                "redis-sentinel://u:s3cret@one,two:1/orders?sentinel_pasword=s3cret",
                "redis-sentinel://…@one,two:1/orders?sentinel_pasword=…",
            ),
            ("redis-cluster://one,,two/1", "redis-cluster://one,,two/1"),
            (
                "unix:///run/redis.sock?user=u&pass=s3cret&db=x",
                "unix:///run/redis.sock?user=…&pass=…&…",
            ),
            ("memory://x", "memory://x"),
            ("memory:a?x=1", "memory:a?x=…"),
            ("memory:a#b", "memory:a#…"),
            ("http://h/", "http:…"),
            ("", ""),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[test]
    fn what_may_be_a_password_is_hidden() {
        for (url, shown) in [
            ("redis:s3cret", "redis:…"),
            ("redis://:s3cret", "redis://…"),
            ("redis://user:s3cret/1", "redis://…"),
            ("redis://user:12/s3cret", "redis://user:12/…"),
            ("redis://user:12/s3cret@h/", "redis:…"),
            ("redis://user:12?s3cret@h/", "redis:…"),
            ("redis://user:12#s3cret", "redis:…"),
            (
                "redis://h/?protocol=resp3&s3cret",
                "redis://h/?protocol=…&…",
            ),
            ("redis://h/?token=x&s=3cret", "redis://h/?token=…&…"),
            ("unix://u:s3cret@h/redis.sock", "unix:…"),
            ("unix:///run/\u{202e}redis.sock", "unix:…"),
            ("unix:///redis.sock?pass=12#s3cret", "unix:…"),
            (
                "unix:///redis.sock?pass=x&s=cret",
                "unix:///redis.sock?pass=…&…",
            ),
            ("u:s3cret@h:6379/0", "…"),
            ("s3cret://@h", "…"),
            ("s3cret", "…"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }
}
