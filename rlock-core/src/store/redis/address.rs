//! Which server, as a URL says it.

use std::{fmt, sync::Arc, time::Duration};

use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisError,
    RedisResult,
};

use super::{query, sentinel::Sentinels, tls::Tls};
use crate::{
    error::LockError,
    limits::invalid_url,
    printable::Printable,
    scheme::{Kind, Scheme, known},
};

/// How long an idle connection goes before the system asks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// How long sent bytes may stay unacknowledged before the system gives a connection up.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Explains where the login is in a URL that names hosts.
pub(super) const LOGIN: &str = "user and password stand before the host in the URL: \
    `user:password@host`, or `:password@host` for the user `default`";

/// Where the server is that has the locks.
#[derive(Clone)]
pub(super) struct Address {
    shown: String,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Server(Arc<Server>),
    /// Wherever the master is now.
    Master(Arc<Sentinels>),
}

/// A server, spoken to by RESP3 if it can, else by RESP2.
pub(super) struct Server {
    resp3: Option<Client>,
    resp2: Client,
}

/// How servers are spoken to.
#[derive(Clone)]
pub(super) struct Manner {
    nodelay: bool,
    resp2: bool,
    pub(super) tls: Tls,
}

impl Address {
    /// As [`parse_with`](Self::parse_with), with the certificates that the system has.
    #[cfg(any(test, fuzzing))]
    pub(super) fn parse(url: &str, nodelay: bool) -> Result<Self, LockError> {
        Self::parse_with(url, nodelay, Tls::default())
    }

    pub(super) fn parse_with(url: &str, nodelay: bool, tls: Tls) -> Result<Self, LockError> {
        let manner = Manner::of(url, nodelay, tls)?;
        if Scheme::of(url).is_some_and(|scheme| scheme.kind == Kind::Sentinels) {
            let parsed = Sentinels::parse(url, manner);
            let sentinels = parsed.map_err(|error| not_understood(url, &error))?;
            return Ok(Self {
                shown: Printable(&sentinels.to_string()).to_string(),
                place: Place::Master(Arc::new(sentinels)),
            });
        }
        let parsed = url.into_connection_info();
        let parsed = parsed.and_then(|info| Self::at(&info, &manner));
        parsed.map_err(|error| not_understood(url, &error))
    }

    /// One server.
    pub(super) fn at(info: &ConnectionInfo, manner: &Manner) -> RedisResult<Self> {
        Ok(Self {
            shown: Printable(&info.addr().to_string()).to_string(),
            place: Place::Server(Arc::new(Server::new(info, manner)?)),
        })
    }

    /// The server that has the locks now, for somebody who waits so long to be connected to it.
    pub(super) async fn server(&self, patience: Duration) -> RedisResult<Arc<Server>> {
        match &self.place {
            Place::Server(server) => Ok(Arc::clone(server)),
            Place::Master(sentinels) => sentinels.master(patience).await.map(Arc::new),
        }
    }
}

pub(super) fn not_understood(url: &str, error: &RedisError) -> LockError {
    let form = Scheme::of(url).map_or_else(|| known(|_| true), Scheme::form);
    invalid_url(url, format!("{}; expected {form}", what_is_wrong(error)))
}

/// What an error says, without the name of its kind, which redis-rs writes behind it.
fn what_is_wrong(error: &RedisError) -> String {
    let kind = format!(" - {:?}", error.kind());
    error.to_string().replacen(&kind, "", 1)
}

impl Manner {
    /// What a URL says of it, if it can be meant as it is written.
    pub(super) fn of(url: &str, nodelay: bool, tls: Tls) -> Result<Self, LockError> {
        let scheme = Scheme::of(url);
        if !cfg!(feature = "tls") && scheme.is_some_and(|scheme| scheme.tls) {
            let reason = "TLS needs the feature `tls` of rlock-core";
            return Err(invalid_url(url, reason.to_owned()));
        }
        if let Some(reason) = misread(url) {
            return Err(invalid_url(url, reason.to_owned()));
        }
        if let Some(reason) = query::wrong(url, scheme.map_or(Kind::Server, |scheme| scheme.kind)) {
            return Err(invalid_url(url, reason));
        }
        Ok(Self {
            nodelay,
            resp2: query::wants_resp2(url),
            tls,
        })
    }
}

impl Server {
    pub(super) fn new(info: &ConnectionInfo, manner: &Manner) -> RedisResult<Self> {
        let client = |protocol| {
            let info = with_settings(info, protocol, manner.nodelay);
            manner.tls.open(info)
        };
        let resp3 = (!manner.resp2).then(|| client(ProtocolVersion::RESP3));
        Ok(Self {
            resp3: resp3.transpose()?,
            resp2: client(ProtocolVersion::RESP2)?,
        })
    }

    pub(super) fn preferred(&self) -> &Client {
        self.resp3.as_ref().unwrap_or(&self.resp2)
    }

    /// For connections to which nothing is sent without being asked for.
    pub(super) fn without_pushes(&self) -> &Client {
        &self.resp2
    }

    /// Explains where the login is in this URL.
    pub(super) fn login(&self) -> &'static str {
        match self.resp2.get_connection_info().addr() {
            ConnectionAddr::Unix(_) => {
                "user and password stand behind the `?` of the URL: `unix:///path?user=…&pass=…`"
            }
            _ => LOGIN,
        }
    }

    /// What to try where the preferred protocol is refused.
    pub(super) fn fallback(&self) -> Option<&Client> {
        self.resp3.is_some().then_some(&self.resp2)
    }
}

/// Shows host and port, or the path of a socket; never a password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn with_settings(
    info: &ConnectionInfo,
    protocol: ProtocolVersion,
    nodelay: bool,
) -> ConnectionInfo {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE / 3);
    let tcp = info
        .tcp_settings()
        .clone()
        .set_nodelay(nodelay)
        .set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
    let info = logged_in(info.clone());
    let redis = info.redis_settings().clone().set_protocol(protocol);
    let redis = redis.set_lib_name("rlock", env!("CARGO_PKG_VERSION"));
    info.set_tcp_settings(tcp).set_redis_settings(redis)
}

/// Sets an empty password for a user without one. Without a password, redis-rs skips the login and
/// stays the user `default`. A user with `nopass` may log in with any password.
pub(super) fn logged_in(info: ConnectionInfo) -> ConnectionInfo {
    let settings = info.redis_settings();
    if settings.username().is_none() || settings.password().is_some() {
        return info;
    }
    let settings = settings.clone().set_password("");
    info.set_redis_settings(settings)
}

/// Why a URL is not what was meant, although it can be read.
fn misread(url: &str) -> Option<&'static str> {
    let (scheme, rest) = Scheme::split(url)?;
    let rest = rest.strip_prefix("//")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if scheme.kind != Kind::Socket && rest[end..].contains('@') {
        // What stands before would pass for a host and a port, and be shown.
        return Some(
            "an `@` stands behind the host: in a user's name or password, `/`, `?`, `#` and `@` are \
             percent-encoded, as `%2F`, `%3F`, `%23` and `%40`",
        );
    }
    let (_, fragment) = rest.split_once('#')?;
    Some(match fragment {
        "insecure" => {
            "certificates are always verified; have the system trust the authority that signed the \
             server's, or name that in the environment variable `SSL_CERT_FILE`"
        }
        _ => "nothing can follow a `#`; in a password it is written `%23`",
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn server(address: &Address) -> &Server {
        match &address.place {
            Place::Server(server) => server,
            Place::Master(_) => panic!("no server"),
        }
    }

    #[test]
    fn errors_and_addresses_never_show_a_password() {
        let address = Address::parse("redis://user:s3cret@127.0.0.1:7/2", true).expect("valid");
        assert_eq!(address.to_string(), "127.0.0.1:7");
        let socket = Address::parse("unix:///run/a%0d%0ab.sock", true).expect("valid");
        assert_eq!(socket.to_string(), "/run/a\\r\\nb.sock");
        for (url, reason) in [
            (
                "redis://u:s3cret@h:99999/",
                "Redis URL did not parse; expected `redis://",
            ),
            (
                "redis://u:s3cret@h/not-a-number",
                "Invalid database number; expected `redis://",
            ),
            ("redis://u:s3cret@h/?protocol=9", "`protocol` is `resp2`"),
            ("redis:s3cret", "Missing hostname; expected `redis://"),
            ("unix:s3cret", "expected `unix:///path"),
        ] {
            let error = Address::parse(url, true).err().expect(url);
            assert!(error.to_string().contains(reason), "{error}");
            let shown = format!("{error} {error:?}");
            let (scheme, rest) = url.split_once(':').expect("a scheme");
            let is_shown = rest.contains("//") == shown.contains(&format!("`{scheme}://…@h"));
            assert!(!shown.contains("s3cret") && is_shown, "{shown}");
        }
    }

    #[test]
    fn a_password_that_is_cut_is_refused_before_it_passes_for_an_address() {
        for (url, hint) in [
            ("redis://user:12/s3cret@h/", "%2F"),
            ("redis://user:12?s3cret@h/", "%3F"),
            ("redis://user:12#s3cret@h/", "%23"),
            ("redis://user:12#s3cret", "%23"),
            ("unix:///redis.sock?pass=12#s3cret", "%23"),
        ] {
            let error = Address::parse(url, true).err().expect(url);
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(hint), "{shown}");
            assert!(!shown.contains("s3cret"), "{shown}");
        }
        let whole = Address::parse("redis://user:12%2Fs3%40cret@h/", true).expect("valid");
        let settings = server(&whole)
            .preferred()
            .get_connection_info()
            .redis_settings();
        assert_eq!(settings.password(), Some("12/s3@cret"));
        let socket = "unix:///redis.sock?user=u&pass=s3@cret";
        assert!(Address::parse(socket, true).is_ok());
    }

    #[test]
    #[cfg(feature = "tls")]
    fn verification_cannot_be_switched_off() {
        let error = Address::parse("rediss://h/#insecure", true).err();
        let shown = error.expect("refused").to_string();
        assert!(shown.contains("always verified"), "{shown}");
    }

    proptest! {
        #[test]
        fn no_password_is_shown_wherever_it_stands(before in "[ -~]{0,4}", after in "[ -~]{0,4}") {
            let password = format!("{before}S3CRET{after}");
            let encode = |text, byte| format!("{text}%{byte:02x}");
            let encoded = password.bytes().fold(String::new(), encode);
            for password in [&password, &encoded] {
                let mut urls = vec![
                    format!("redis://:{password}@h/"),
                    format!("redis://u:{password}@h:1/2"),
                    format!("rediss://u:{password}@h/"),
                    format!("redis://u:{password}@h:99999/"),
                    format!("redis://u:{password}@h/no-number"),
                    format!("redis://u:{password}@"),
                    format!("redis:u:{password}@h"),
                    format!("unix:///redis.sock?user=u&pass={password}"),
                    format!("unix:///redis.sock?pass={password}&db=none"),
                    format!("unix://u:{password}@h/redis.sock"),
                    format!("u:{password}@h:6379/0"),
                    format!("{password}@h:6379"),
                    format!("{password}://@h"),
                    format!("http://u:{password}@h/"),
                ];
                // The text before an `@` is a login, and the text after it is a host.
                if !password.contains('@') {
                    urls.push(format!("redis://u:{password}"));
                }
                for url in urls {
                    let shown = match Address::parse(&url, true) {
                        Ok(address) => address.to_string(),
                        Err(error) => format!("{error} {error:?}"),
                    };
                    let shown = shown.to_lowercase();
                    prop_assert!(!shown.contains("s3cret") && !shown.contains("%53%33"), "{shown}");
                }
            }
        }
    }

    #[test]
    fn the_url_may_ask_for_the_older_protocol() {
        let both = Address::parse("redis://127.0.0.1/", true).expect("valid");
        assert!(server(&both).fallback().is_some());
        let one = Address::parse("redis://127.0.0.1/?protocol=resp2", true).expect("valid");
        assert!(server(&one).fallback().is_none());
    }
}
