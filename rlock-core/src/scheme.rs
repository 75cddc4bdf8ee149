//! The schemes of URLs and their stores.

/// The kind of store that a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    /// One server, over TCP.
    Server,
    /// One server, over a Unix socket.
    Socket,
    Sentinels,
    Cluster,
}

/// The first part of a URL.
#[derive(Debug)]
pub(crate) struct Scheme {
    name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) tls: bool,
}

const SCHEMES: [Scheme; 12] = [
    Scheme::new("memory", Kind::Memory, false),
    Scheme::new("redis", Kind::Server, false),
    Scheme::new("rediss", Kind::Server, true),
    Scheme::new("redis-sentinel", Kind::Sentinels, false),
    Scheme::new("rediss-sentinel", Kind::Sentinels, true),
    Scheme::new("redis-cluster", Kind::Cluster, false),
    Scheme::new("rediss-cluster", Kind::Cluster, true),
    Scheme::new("unix", Kind::Socket, false),
    Scheme::new("redis+unix", Kind::Socket, false),
    Scheme::new("valkey", Kind::Server, false),
    Scheme::new("valkeys", Kind::Server, true),
    Scheme::new("valkey+unix", Kind::Socket, false),
];

impl Scheme {
    const fn new(name: &'static str, kind: Kind, tls: bool) -> Self {
        Self { name, kind, tls }
    }

    /// Returns the scheme of a URL and what follows its colon, if the scheme is known.
    pub(crate) fn split(url: &str) -> Option<(&'static Self, &str)> {
        let (name, rest) = url.split_once(':')?;
        let scheme = SCHEMES.iter().find(|scheme| scheme.name == name)?;
        Some((scheme, rest))
    }

    /// Returns the scheme of a URL, if it is known.
    pub(crate) fn of(url: &str) -> Option<&'static Self> {
        Self::split(url).map(|(scheme, _)| scheme)
    }

    /// Returns the scheme by which redis-rs connects to one server over TCP.
    pub(crate) fn of_one_server(&self) -> &'static str {
        if self.tls { "rediss" } else { "redis" }
    }

    /// Returns the form of a URL with this scheme.
    pub(crate) fn form(&self) -> String {
        let rest = match self.kind {
            Kind::Memory => "name",
            Kind::Server => "//[user:password@]host[:port][/database]",
            Kind::Socket => "///path/to/socket[?db=0&user=…&pass=…]",
            Kind::Sentinels => "//[user:password@]host[:port],host[:port],…/service[/database]",
            Kind::Cluster => "//[user:password@]host[:port],host[:port],…",
        };
        format!("`{}:{rest}`", self.name)
    }
}

/// Lists the schemes of these kinds for an error.
pub(crate) fn known(are_meant: impl Fn(Kind) -> bool) -> String {
    let meant = SCHEMES.iter().filter(|scheme| are_meant(scheme.kind));
    let names = meant.map(|scheme| match scheme.kind {
        Kind::Memory => format!("`{}:`", scheme.name),
        _ => format!("`{}://`", scheme.name),
    });
    names.collect::<Vec<_>>().join(", ")
}
