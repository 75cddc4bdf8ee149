//! Splits a URL into parts, and words the errors about it, with a corrected form and without its secrets.

use std::net::{Ipv4Addr, SocketAddrV6};

/// What a URL names, by its scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlKind {
    Memory,
    Server,
    Socket,
    Sentinels,
    Cluster,
    Postgres,
}

/// All schemes, what each names, and whether its servers use TLS.
const SCHEMES: [(&str, UrlKind, bool); 14] = [
    ("redis", UrlKind::Server, false),
    ("rediss", UrlKind::Server, true),
    ("redis-sentinel", UrlKind::Sentinels, false),
    ("rediss-sentinel", UrlKind::Sentinels, true),
    ("redis-cluster", UrlKind::Cluster, false),
    ("rediss-cluster", UrlKind::Cluster, true),
    ("unix", UrlKind::Socket, false),
    ("redis+unix", UrlKind::Socket, false),
    ("valkey", UrlKind::Server, false),
    ("valkeys", UrlKind::Server, true),
    ("valkey+unix", UrlKind::Socket, false),
    ("memory", UrlKind::Memory, false),
    ("postgres", UrlKind::Postgres, false),
    ("postgresql", UrlKind::Postgres, false),
];

/// What an error for another scheme shows. The schemes with TLS have an `s` behind `redis` or `valkey`.
pub(super) const EXPECTED: &str = "expected one of `redis://`, `redis-sentinel://`, `redis-cluster://`, `unix://`, \
     `valkey://`, `postgres://` and `memory:`, in lower case";

/// What an error for several URLs in one text shows, and for several hosts where one belongs.
pub(super) const SEVERAL: &str = "it names several servers: independent ones are a quorum, written \
     `StoreUrl::quorum([…])`, or as URLs with spaces in between in `RLOCK_URL`; the nodes of a cluster are \
     `redis-cluster://a,b`, and Sentinels are `redis-sentinel://a,b/service`";

impl UrlKind {
    /// Returns the form of the URL behind the scheme, and the options that can stand behind its `?`.
    pub(super) fn form(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Memory => ("[name]", &[]),
            Self::Server => ("//[user:password@]host[:port][/database]", &["protocol"]),
            Self::Socket => (
                "///path/to/socket[?db=0&user=…&pass=…]",
                &["protocol", "db", "user", "pass"],
            ),
            Self::Sentinels => (
                "//[user:password@]host[:port],host[:port],…/service[/database]",
                &["protocol", "sentinel_user", "sentinel_password"],
            ),
            Self::Cluster => ("//[user:password@]host[:port],host[:port],…", &["protocol"]),
            Self::Postgres => (
                "//[user[:password]@]host[:port]/database[?schema=…]",
                &[
                    "schema",
                    "durability",
                    "direct",
                    "user",
                    "password",
                    "dbname",
                    "host",
                    "hostaddr",
                    "port",
                    "options",
                    "sslmode",
                    "target_session_attrs",
                ],
            ),
        }
    }
}

/// The parts of a URL with a known scheme.
pub(super) struct UrlParts<'a> {
    pub(super) scheme: &'static str,
    pub(super) kind: UrlKind,
    pub(super) tls: bool,
    pub(super) has_slashes: bool,
    /// User and password, with the `@` that ends them.
    pub(super) login: &'a str,
    pub(super) hosts: &'a str,
    /// The text behind the hosts. Without slashes, the text behind the scheme.
    tail: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
}

impl<'a> UrlParts<'a> {
    /// Returns `None` if the scheme is unknown.
    pub(super) fn of(url: &'a str) -> Option<Self> {
        let (name, rest) = url.split_once(':')?;
        let (scheme, kind, tls) = *SCHEMES.iter().find(|(scheme, ..)| *scheme == name)?;
        let behind = rest.strip_prefix("//");
        let (authority, tail) = match behind {
            Some(behind) => behind.split_at(behind.find(['/', '?', '#']).unwrap_or(behind.len())),
            None => ("", rest),
        };
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        Some(Self {
            scheme,
            kind,
            tls,
            has_slashes: behind.is_some(),
            login,
            hosts,
            tail,
            path,
            query,
        })
    }

    /// Returns whether the text, of which these are the parts, is a list of URLs or of hosts of single servers.
    pub(super) fn are_of_several(&self, text: &str) -> bool {
        let is_url = |text: &str| {
            let (name, _) = text.split_once("://").unwrap_or_default();
            SCHEMES.iter().any(|(scheme, ..)| *scheme == name)
        };
        let is_separator = |c: char| matches!(c, ',' | ';') || c.is_ascii_whitespace();
        self.kind == UrlKind::Server && self.hosts.contains(',')
            || text.split(is_separator).skip(1).any(is_url)
    }

    /// Checks what redis-rs would read in another way, or not at all.
    pub(super) fn check(&self) -> Result<(), String> {
        let reason = if self.kind == UrlKind::Memory {
            if !self.has_slashes && !self.tail.contains(['?', '#']) {
                return Ok(());
            }
            "the embedded store has neither a host nor options"
        } else if self.kind == UrlKind::Server && !self.has_slashes && is_port(self.tail) {
            let Self { scheme, tail, .. } = self;
            return Err(format!(
                "the host is missing: did you mean `redis://{scheme}:{tail}`?"
            ));
        } else if self.tail.contains('#') {
            "nothing can follow a `#`: in a password it is written `%23`, and certificates are always verified"
        } else if self.kind != UrlKind::Socket && self.has_slashes && self.has_stray_at() {
            // The text before the `@` would pass for a host and a port.
            "an `@` stands behind the host: in a user's name or password, `/`, `?`, `#` and `@` are \
             percent-encoded, as `%2F`, `%3F`, `%23` and `%40`"
        } else {
            let (_, known) = self.kind.form();
            if self.options().all(|(name, _)| known.contains(&name)) {
                return Ok(());
            }
            let known = known.join("`, `");
            // The unknown option may be a part of a password, so it is not shown.
            return Err(format!(
                "an option behind the `?` is not known; known are `{known}`"
            ));
        };
        Err(reason.to_owned())
    }

    /// Returns whether an `@` stands behind the host, except before the host of a second address.
    fn has_stray_at(&self) -> bool {
        let is_address = |name: &str| self.kind == UrlKind::Postgres && name == "direct";
        let mut options = self.options();
        self.path.contains('@')
            || options
                .any(|(name, value)| name.contains('@') || value.contains('@') && !is_address(name))
    }

    fn options(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// Returns the value of an option. The last of several counts.
    pub(super) fn option(&self, name: &str) -> Option<&'a str> {
        self.options()
            .filter_map(|(key, value)| (key == name).then_some(value))
            .last()
    }
}

/// Returns the reason why the scheme of a URL is unknown. Shows the URL only if it is an address, because anything else may
/// contain a password.
pub(super) fn no_scheme(url: &str) -> String {
    let (name, port) = url.split_once(':').unwrap_or((url, ""));
    let is_address = name == "localhost" || name.parse::<Ipv4Addr>().is_ok();
    if is_address && is_host(url) && !port.starts_with('0') {
        format!("a URL begins with `redis://`: did you mean `redis://{url}`?")
    } else {
        EXPECTED.to_owned()
    }
}

/// Returns what an error shows of a URL: its scheme, and its hosts if no part of a password can be among them.
pub(crate) fn redacted(url: &str) -> String {
    let Some(parts) = UrlParts::of(url) else {
        return match url.split_once("://") {
            Some((scheme, rest)) if is_host(scheme) && !rest.contains('@') => format!("{scheme}:…"),
            _ => "…".to_owned(),
        };
    };
    let UrlParts { scheme, hosts, .. } = parts;
    let are_hosts = match parts.kind {
        UrlKind::Sentinels | UrlKind::Cluster | UrlKind::Postgres => hosts.split(',').all(is_host),
        _ => is_host(hosts),
    };
    if !are_hosts || hosts.is_empty() || parts.tail.contains(['@', '#']) {
        return format!("{scheme}:…");
    }
    let login = if parts.login.is_empty() { "" } else { "…@" };
    let tail = if parts.tail.is_empty() { "" } else { "/…" };
    format!("{scheme}://{login}{hosts}{tail}")
}

fn is_host(text: &str) -> bool {
    let (name, port) = text.split_once(':').unwrap_or((text, ""));
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    name.chars().all(is_of_name) && (port.is_empty() || is_port(port))
        || text.parse::<SocketAddrV6>().is_ok()
}

fn is_port(text: &str) -> bool {
    (1..6).contains(&text.len()) && text.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_gets_one_and_possible_passwords_are_hidden() {
        for address in ["127.0.0.1:6379", "127.0.0.1", "localhost:6379"] {
            let meant = format!("did you mean `redis://{address}`?");
            assert!(no_scheme(address).ends_with(&meant), "{address}");
        }
        for other in [
            "alice:1234",
            "localhost:s3cret",
            "s3cret",
            "",
            "localhost:6379/s3cret",
        ] {
            assert_eq!(no_scheme(other), EXPECTED);
        }
        let missing = UrlParts::of("redis:6379").expect("a scheme").check();
        let missing = missing.expect_err("no host");
        assert!(
            missing.ends_with("did you mean `redis://redis:6379`?"),
            "{missing}"
        );
    }

    #[test]
    fn hosts_and_ports_are_shown_and_what_may_be_a_password_is_hidden() {
        for (url, shown) in [
            ("redis://h:99999", "redis://h:99999"),
            ("redis://u:s3cret@h:99999/3", "redis://…@h:99999/…"),
            ("redis://one,two/?db=3", "redis:…"),
            ("rediss://u:s3cret@[::1]:7/", "rediss://…@[::1]:7/…"),
            ("rediss://u:s3cret@[::1]/", "rediss:…"),
            (
                "redis-sentinel://u:s3cret@one,two:1/orders?sentinel_pasword=s3cret",
                "redis-sentinel://…@one,two:1/…",
            ),
            ("redis-cluster://one,,two/1", "redis-cluster://one,,two/…"),
            ("unix:///run/redis.sock?user=u&pass=s3cret", "unix:…"),
            ("unix://u:s3cret@h/redis.sock", "unix://…@h/…"),
            ("memory:a?x=1", "memory:…"),
            ("redis://", "redis:…"),
            ("redis:s3cret", "redis:…"),
            ("redis://:s3cret", "redis:…"),
            ("redis://user:s3cret/1", "redis:…"),
            ("redis://user:12/s3cret", "redis://user:12/…"),
            ("redis://user:12/s3cret@h/", "redis:…"),
            ("redis://user:12?s3cret@h/", "redis:…"),
            ("redis://user:12#s3cret", "redis:…"),
            ("redis://h/?token=x&s=3cret", "redis://h/…"),
            ("u:s3cret@h:6379/0", "…"),
            ("s3cret://@h", "…"),
            ("http://h/", "http:…"),
            ("", "…"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }
}
