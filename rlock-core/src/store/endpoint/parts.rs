//! The kinds of URLs, and the parts of one.

use crate::store::tls::Tls;

/// The kinds of URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Memory,
    /// One server, over TCP.
    Server,
    /// One server, over a Unix socket.
    Socket,
    Sentinels,
    Cluster,
}

/// Each scheme, its kind, and whether it uses TLS.
const SCHEMES: [(&str, Kind, bool); 12] = [
    ("redis", Kind::Server, false),
    ("rediss", Kind::Server, true),
    ("redis-sentinel", Kind::Sentinels, false),
    ("rediss-sentinel", Kind::Sentinels, true),
    ("redis-cluster", Kind::Cluster, false),
    ("rediss-cluster", Kind::Cluster, true),
    ("unix", Kind::Socket, false),
    ("redis+unix", Kind::Socket, false),
    ("valkey", Kind::Server, false),
    ("valkeys", Kind::Server, true),
    ("valkey+unix", Kind::Socket, false),
    ("memory", Kind::Memory, false),
];

impl Kind {
    /// Returns the form of a URL behind the scheme's colon, its options, and where it has the other settings.
    pub(super) fn described(self) -> (&'static str, &'static [&'static str], &'static str) {
        match self {
            Self::Memory => ("name", &[], ""),
            Self::Server => (
                "//[user:password@]host[:port][/database]",
                &["protocol"],
                "; a database stands in the path (`redis://host/3`), user and password before the host, \
                 times are set by `LockClient::builder()`",
            ),
            Self::Socket => (
                "///path/to/socket[?db=0&user=…&pass=…]",
                &["protocol", "db", "user", "pass"],
                "",
            ),
            Self::Sentinels => (
                "//[user:password@]host[:port],host[:port],…/service[/database]",
                &["protocol", "sentinel_user", "sentinel_password"],
                "; a database stands behind the service, the master's user and password before the hosts, \
                 times are set by `LockClient::builder()`",
            ),
            Self::Cluster => (
                "//[user:password@]host[:port],host[:port],…",
                &["protocol"],
                "; user and password stand before the hosts, times are set by `LockClient::builder()`",
            ),
        }
    }

    pub(super) fn is_one_server(self) -> bool {
        matches!(self, Self::Server | Self::Socket | Self::Sentinels)
    }
}

/// The parts of a URL with a known scheme: `scheme:[//][login@]hosts[/path][?query][#fragment]`.
pub(super) struct Parts<'a> {
    pub(super) scheme: &'static str,
    pub(super) kind: Kind,
    pub(super) tls: bool,
    pub(super) has_slashes: bool,
    /// With its `@`.
    pub(super) login: &'a str,
    pub(super) hosts: &'a str,
    /// Everything behind the hosts: path, query and fragment.
    pub(super) tail: &'a str,
    /// With its `/`.
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) fragment: Option<&'a str>,
}

impl<'a> Parts<'a> {
    /// Splits a URL, if its scheme is known.
    pub(super) fn of(url: &'a str) -> Option<Self> {
        let (name, rest) = url.split_once(':')?;
        let (scheme, kind, tls) = *SCHEMES.iter().find(|(scheme, ..)| *scheme == name)?;
        let behind = rest.strip_prefix("//");
        let (authority, tail) = match behind {
            Some(behind) => behind.split_at(behind.find(['/', '?', '#']).unwrap_or(behind.len())),
            None => ("", rest),
        };
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let (before, fragment) = match tail.split_once('#') {
            Some((before, fragment)) => (before, Some(fragment)),
            None => (tail, None),
        };
        let (path, query) = before.split_once('?').unwrap_or((before, ""));
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
            fragment,
        })
    }

    /// Fails if a URL would not be read as it is meant.
    pub(super) fn check(&self) -> Result<(), String> {
        let reason = if self.kind == Kind::Memory {
            if self.has_slashes {
                "the embedded store has no host; expected `memory:` or `memory:name`"
            } else if self.tail.contains(['?', '#']) {
                "the embedded store has no options, and its name has no `?` or `#`; expected `memory:` or `memory:name`"
            } else {
                return Ok(());
            }
        } else if self.tls && !Tls::IS_SUPPORTED {
            "TLS needs the feature `tls` of rlock-core"
        } else if self.kind != Kind::Socket && self.has_slashes && self.tail.contains('@') {
            // The text before the `@` would pass for a host and a port, and be shown.
            "an `@` stands behind the host: in a user's name or password, `/`, `?`, `#` and `@` are \
             percent-encoded, as `%2F`, `%3F`, `%23` and `%40`"
        } else {
            match self.fragment {
                Some("insecure") => {
                    "certificates are always verified; have the system trust the authority that signed the \
                     server's, or name that in the environment variable `SSL_CERT_FILE`"
                }
                Some(_) => "nothing can follow a `#`; in a password it is written `%23`",
                None => return self.check_options(),
            }
        };
        Err(reason.to_owned())
    }

    /// Fails for an option that redis-rs would ignore.
    fn check_options(&self) -> Result<(), String> {
        let protocol = self.option("protocol").unwrap_or("3");
        if !matches!(protocol, "resp2" | "2" | "resp3" | "3") {
            return Err("`protocol` is `resp2` or `resp3`".to_owned());
        }
        let (_, known, elsewhere) = self.kind.described();
        let mut options = self.options();
        let Some(number) = options.position(|(name, _)| !known.contains(&name)) else {
            return Ok(());
        };
        // An option that may be part of a password is counted, not named.
        let unknown = match names(self.query).nth(number).flatten() {
            Some(name) => format!("option `{name}`"),
            None => format!("option {} behind the `?`", number + 1),
        };
        let known = known.join("`, `");
        Err(format!(
            "{unknown} is not known; known are `{known}`{elsewhere}"
        ))
    }

    /// Fails if a port is not valid.
    pub(super) fn check_ports(&self) -> Result<(), String> {
        for host in self.hosts.split(',') {
            let behind_address = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
            let port = behind_address.split_once(':').map_or("", |(_, port)| port);
            if !port.is_empty() && port.parse::<u16>().is_err() {
                // A longer text may be a password.
                let is_number = port.len() < 6 && port.chars().all(|c| c.is_ascii_digit());
                let named = if is_number {
                    format!(" `{port}`")
                } else {
                    String::new()
                };
                return Err(format!("the port{named} is not a number up to 65535"));
            }
        }
        Ok(())
    }

    fn options(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// Returns the last value of an option, which is the one that redis-rs reads.
    pub(super) fn option(&self, name: &str) -> Option<&'a str> {
        self.options()
            .filter_map(|(key, value)| (key == name).then_some(value))
            .last()
    }
}

/// Lists schemes for an error.
pub(super) fn schemes(are_meant: impl Fn(Kind) -> bool) -> String {
    let meant = SCHEMES.iter().filter(|(_, kind, _)| are_meant(*kind));
    let names = meant.map(|(scheme, kind, _)| match kind {
        Kind::Memory => format!("`{scheme}:`"),
        _ => format!("`{scheme}://`"),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Returns the names of options, and `None` for a name that may be part of a value. A password may
/// contain a `&` that is not percent-encoded.
pub(super) fn names(query: &str) -> impl Iterator<Item = Option<&str>> {
    const HARMLESS: [&str; 3] = ["protocol", "db", "user"];
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut is_password = false;
    pairs.map(move |pair| {
        let name = pair.split_once('=').map(|(name, _)| name);
        let name = name.filter(|name| {
            let is_of_name = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '-');
            !is_password && !name.is_empty() && name.len() <= 32 && name.chars().all(is_of_name)
        });
        is_password |= !name.is_some_and(|name| HARMLESS.contains(&name));
        name
    })
}
