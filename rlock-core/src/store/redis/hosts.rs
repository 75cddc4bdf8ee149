//! URLs that name several hosts, of which the ones that have the locks are found out:
//! `redis-…://[user:password@]host[:port],host[:port],…[/path][?options]`.

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult};

/// Such a URL, taken apart.
pub(super) struct Hosts<'a> {
    /// How the servers are spoken to.
    pub(super) scheme: &'static str,
    /// With the `@` behind it, or empty.
    pub(super) login: &'a str,
    pub(super) names: Vec<&'a str>,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
}

/// Whether a URL is for hosts of that kind: `sentinel`, `cluster`.
pub(super) fn are_meant(url: &str, kind: &str) -> bool {
    scheme(url, kind).is_some()
}

fn scheme<'a>(url: &'a str, kind: &str) -> Option<(&'static str, &'a str)> {
    let (scheme, rest) = url.split_once("://")?;
    match scheme.strip_suffix(kind)? {
        "redis-" => Some(("redis", rest)),
        "rediss-" => Some(("rediss", rest)),
        _ => None,
    }
}

impl<'a> Hosts<'a> {
    pub(super) fn parse(url: &'a str, kind: &str) -> RedisResult<Self> {
        let (scheme, rest) = scheme(url, kind).ok_or_else(|| wrong("it names other servers"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let names: Vec<&str> = hosts.split(',').collect();
        if names.contains(&"") {
            return Err(wrong("it names a host without a name"));
        }
        Ok(Self {
            scheme,
            login,
            names,
            path,
            query,
        })
    }
}

/// The same way to speak, to another server.
pub(super) fn elsewhere(info: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let addr = match info.addr() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}

pub(super) fn wrong(what: &'static str) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, what))
}
