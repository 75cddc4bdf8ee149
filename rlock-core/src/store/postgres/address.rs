//! Parses the URL of a Postgres store: the server, the database, the login, and the schema of the tables.

use std::fmt;

use rlock_proto::escape_control::escape_control;
use tokio_postgres::{
    Config,
    config::{Host, SslMode, TargetSessionAttrs},
};

use super::schema::{Durability, Schema};
use crate::store::tls::Tls;

/// The schema of a URL that names none.
const SCHEMA: &str = "rlock";

/// A Postgres server, and where it has the locks.
#[derive(Clone)]
pub(crate) struct PostgresEndpoint {
    pub(super) config: Config,
    pub(super) schema: Schema,
    /// The server itself, if the other address is that of a pooler.
    direct: Option<Box<Config>>,
    /// Whether the URL says that no pooler shares these sessions.
    pub(super) is_direct: bool,
}

impl PostgresEndpoint {
    /// Parses a URL, of which `options` are those behind the `?`.
    pub(in crate::store) fn parse(url: &str, options: &str) -> Result<Self, String> {
        let (address, _) = url.split_once('?').unwrap_or((url, ""));
        let (mut name, mut durability) = (SCHEMA, Durability::Disk);
        let (mut direct, mut others) = (None, Vec::new());
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("schema", given) => name = given,
                ("direct", given) => direct = Some(given),
                ("durability", given) => {
                    let known = Durability::named(given);
                    durability = known.ok_or("`durability` is `disk` or `memory`")?;
                }
                // Every client asks for a server that takes writes.
                ("target_session_attrs", "read-write" | "primary") => {}
                ("target_session_attrs", _) => {
                    return Err(
                        "`target_session_attrs` is `read-write`, because a standby grants no locks"
                            .to_owned(),
                    );
                }
                // Certificates are always verified, with the host.
                ("sslmode", "verify-ca" | "verify-full") => others.push("sslmode=require"),
                _ => others.push(option),
            }
        }
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || name.len() > 63 || !name.chars().all(is_of_name) {
            return Err("`schema` is a name of lower-case letters, digits and `_`".to_owned());
        }
        let config = read(address, &others)?;
        let direct = direct.map(|address| {
            let is_of_host = |option: &&&str| {
                let (name, _) = option.split_once('=').unwrap_or_default();
                matches!(name, "host" | "hostaddr" | "port")
            };
            let of_both: Vec<_> =
                (others.iter().filter(|option| !is_of_host(option)).copied()).collect();
            let direct = read(&format!("postgres://{address}"), &of_both);
            let direct = direct.map_err(|reason| format!("{reason}, in `direct`"))?;
            Ok::<_, String>(Box::new(with_login(direct, &config)))
        });
        Ok(Self {
            direct: direct.transpose()?,
            config,
            schema: Schema {
                name: name.to_owned(),
                durability,
            },
            is_direct: false,
        })
    }

    /// Returns the endpoint of sessions that listen: the server itself, if the URL names it.
    pub(in crate::store) fn of_listeners(&self) -> Self {
        let direct = self.direct.as_deref();
        Self {
            config: direct.unwrap_or(&self.config).clone(),
            schema: self.schema.clone(),
            direct: None,
            is_direct: direct.is_some(),
        }
    }

    /// Returns whether the URL names the server itself next to a pooler.
    pub(in crate::store) fn has_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Returns an endpoint for each host, even if that is a standby.
    pub(in crate::store) fn each(&self) -> Vec<Self> {
        let hosts = self.hosts().into_iter();
        let alone = hosts.map(|mut config| {
            config.target_session_attrs(TargetSessionAttrs::Any);
            Self {
                config,
                ..self.clone()
            }
        });
        alone.collect()
    }

    /// Returns a configuration for each host.
    pub(super) fn hosts(&self) -> Vec<Config> {
        let config = &self.config;
        let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
        let ports = config.get_ports();
        let of_host = |n: usize| {
            let mut one = Config::new();
            one.ssl_mode(config.get_ssl_mode());
            one.target_session_attrs(config.get_target_session_attrs());
            if let Some(user) = config.get_user() {
                one.user(user);
            }
            if let Some(password) = config.get_password() {
                one.password(password);
            }
            if let Some(name) = config.get_dbname() {
                one.dbname(name);
            }
            if let Some(options) = config.get_options() {
                one.options(options);
            }
            if let Some(address) = addresses.get(n) {
                one.hostaddr(*address);
            }
            if let Some(port) = ports.get(n).or(ports.first()) {
                one.port(*port);
            }
            match hosts.get(n) {
                Some(Host::Tcp(host)) => one.host(host),
                #[cfg(unix)]
                Some(Host::Unix(path)) => one.host_path(path),
                None => &mut one,
            };
            one
        };
        (0..hosts.len().max(addresses.len())).map(of_host).collect()
    }

    pub(in crate::store) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns whether locks survive a crash of the server.
    pub(in crate::store) fn is_durable(&self) -> bool {
        self.schema.durability == Durability::Disk
    }

    pub(in crate::store) fn uses_tls(&self) -> bool {
        self.config.get_ssl_mode() == SslMode::Require
    }

    pub(crate) fn has_login(&self) -> bool {
        self.config.get_user().is_some() || self.config.get_password().is_some()
    }
}

/// Reads an address with these options.
fn read(address: &str, options: &[&str]) -> Result<Config, String> {
    let url = format!("{address}?{}", options.join("&"));
    // The detail of the error may be a part of a password.
    let config: Result<Config, _> = url.parse();
    let mut config = config.map_err(|_| {
        "it is not a URL of Postgres; check its ports and `sslmode`, and percent-encode the password"
    })?;
    // The parser ends the password at the first `@`, and no error may show what follows.
    if config
        .get_hosts()
        .iter()
        .any(|host| matches!(host, Host::Tcp(host) if host.contains('@')))
    {
        return Err("write an `@` in the user or the password as `%40`".to_owned());
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err("it names no host".to_owned());
    }
    if config.get_ssl_mode() == SslMode::Require && !Tls::IS_SUPPORTED {
        return Err("TLS needs the feature `tls` of rlock-core".to_owned());
    }
    // A standby, and a server that is read-only, grants no locks.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    Ok(config)
}

/// Returns a configuration with the login and the database of another one where it names none.
fn with_login(mut config: Config, other: &Config) -> Config {
    if let (None, Some(user)) = (config.get_user(), other.get_user()) {
        config.user(user);
    }
    if let (None, Some(password)) = (config.get_password(), other.get_password()) {
        config.password(password);
    }
    if let (None, Some(database)) = (config.get_dbname(), other.get_dbname()) {
        config.dbname(database);
    }
    config
}

/// Shows hosts and ports, or the path of a socket, and the database.
impl fmt::Display for PostgresEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, ports) = (self.config.get_hosts(), self.config.get_ports());
        let host = |(n, host): (usize, &Host)| {
            let port = ports.get(n).or(ports.first()).unwrap_or(&5432);
            match host {
                Host::Tcp(host) => format!("{host}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => path.display().to_string(),
            }
        };
        let mut shown: Vec<String> = hosts.iter().enumerate().map(host).collect();
        if shown.is_empty() {
            let address = |address: &std::net::IpAddr| address.to_string();
            shown = self.config.get_hostaddrs().iter().map(address).collect();
        }
        let database = self.config.get_dbname().unwrap_or_default();
        f.write_str(&escape_control(&format!("{}/{database}", shown.join(","))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_server_and_the_schema() {
        let memory = "schema=l&durability=memory&target_session_attrs=read-write";
        for (url, options, shown, schema) in [
            ("postgres://u:p@h/app", "", "h:5432/app", "rlock on disk"),
            ("postgres://h:7/app", memory, "h:7/app", "l on memory"),
            (
                "postgresql://a,b/app",
                "",
                "a:5432,b:5432/app",
                "rlock on disk",
            ),
            ("postgres:///app", "host=/run", "/run/app", "rlock on disk"),
        ] {
            let url = format!("{url}?{options}");
            let endpoint = PostgresEndpoint::parse(&url, options).expect(&url);
            assert_eq!(endpoint.to_string(), shown);
            let Schema { name, durability } = &endpoint.schema;
            assert_eq!(format!("{name} on {}", durability.name()), schema);
            let each = endpoint.each();
            let each: Vec<_> = each.iter().map(ToString::to_string).collect();
            assert_eq!(each.len(), shown.split(',').count(), "{each:?}");
        }
    }

    #[test]
    fn the_server_itself_has_the_login_and_the_database_of_the_url_unless_it_names_others() {
        let options = "direct=db:5432&schema=l";
        let endpoint = PostgresEndpoint::parse("postgres://u:p@pooler:6432/app", options);
        let endpoint = endpoint.expect("valid");
        assert!(endpoint.has_direct() && !endpoint.is_direct);
        assert_eq!(endpoint.to_string(), "pooler:6432/app");
        let direct = endpoint.of_listeners();
        assert!(direct.is_direct);
        assert_eq!(direct.to_string(), "db:5432/app");
        assert_eq!(direct.schema.name, "l");
        assert_eq!(direct.config.get_user(), Some("u"));
        assert_eq!(direct.config.get_password(), Some(&b"p"[..]));
        let endpoint = PostgresEndpoint::parse("postgres://u@pooler/app", "direct=v@db/other");
        let direct = endpoint.expect("valid").of_listeners();
        assert_eq!(direct.to_string(), "db:5432/other");
        assert_eq!(direct.config.get_user(), Some("v"));
        assert!(PostgresEndpoint::parse("postgres://u@pooler/app", "direct=").is_err());
    }

    #[test]
    fn a_url_that_the_client_cannot_use_is_refused() {
        for (options, reason) in [
            ("schema=a\"b", "`schema` is a name"),
            ("durability=ram", "`durability` is `disk` or `memory`"),
            ("target_session_attrs=any", "a standby grants no locks"),
            ("port=x", "not a URL"),
            ("direct=u:a@b@h", "as `%40`, in `direct`"),
        ] {
            let refused = PostgresEndpoint::parse("postgres://h/app", options);
            let refused = refused.err().expect(options);
            assert!(refused.contains(reason), "{refused}");
        }
        let refused = PostgresEndpoint::parse("postgres://u:pass@word@h/app", "");
        let refused = refused.err().expect("its host would be `word@h`");
        assert!(refused.contains("`%40`") && !refused.contains("word@"));
        assert!(PostgresEndpoint::parse("postgres:///app", "").is_err());
    }
}
