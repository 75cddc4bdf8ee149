//! URLs that name several hosts, of which the ones that have the locks are found out:
//! `redis-…://[user:password@]host[:port],host[:port],…[/path][?options]`.

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult};

use crate::scheme::Scheme;

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

impl<'a> Hosts<'a> {
    pub(super) fn parse(url: &'a str) -> RedisResult<Self> {
        let split = Scheme::split(url);
        let split = split.and_then(|(scheme, rest)| Some((scheme, rest.strip_prefix("//")?)));
        let (scheme, rest) = split.ok_or_else(|| wrong("it names no host"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let names: Vec<&str> = hosts.split(',').collect();
        if names.contains(&"") {
            return Err(wrong("it names a host without a name"));
        }
        Ok(Self {
            scheme: scheme.of_one_server(),
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
