//! Which server, as a URL says it.

use std::{fmt, time::Duration};

use redis::{Client, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisResult};

use crate::error::LockError;

/// How long an idle connection goes before the system asks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// How long sent bytes may stay unacknowledged before the system gives a connection up.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// A server, spoken to by RESP3 if it can, else by RESP2.
#[derive(Clone)]
pub(super) struct Address {
    shown: String,
    resp3: Option<Client>,
    resp2: Client,
}

impl Address {
    pub(super) fn parse(url: &str, nodelay: bool) -> Result<Self, LockError> {
        if !cfg!(feature = "tls") && (url.starts_with("rediss:") || url.starts_with("valkeys:")) {
            return Err(invalid(url, "TLS needs the feature `tls` of rlock-core"));
        }
        let parsed = url.into_connection_info().and_then(|info| {
            let shown = info.addr().to_string();
            let resp3 = if wants_resp2(url) {
                None
            } else {
                Some(Client::open(with_settings(
                    &info,
                    ProtocolVersion::RESP3,
                    nodelay,
                ))?)
            };
            let resp2 = Client::open(with_settings(&info, ProtocolVersion::RESP2, nodelay))?;
            RedisResult::Ok(Self {
                shown,
                resp3,
                resp2,
            })
        });
        parsed.map_err(|error| {
            let text = error.to_string();
            invalid(
                url,
                &format!("{text}; expected `redis://[user:password@]host[:port][/database]`"),
            )
        })
    }

    pub(super) fn preferred(&self) -> &Client {
        self.resp3.as_ref().unwrap_or(&self.resp2)
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

fn wants_resp2(url: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or("");
    query
        .split('&')
        .any(|pair| matches!(pair, "protocol=resp2" | "protocol=2"))
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
    let redis = info.redis_settings().clone().set_protocol(protocol);
    let redis = redis.set_lib_name("rlock", env!("CARGO_PKG_VERSION"));
    info.clone().set_tcp_settings(tcp).set_redis_settings(redis)
}

fn invalid(url: &str, reason: &str) -> LockError {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    LockError::InvalidOption {
        option: "url",
        // The rest may hold a password.
        value: format!("`{scheme}:…`"),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_addresses_never_show_a_password() {
        let address = Address::parse("redis://user:s3cret@127.0.0.1:7/2", true).expect("valid");
        assert_eq!(address.to_string(), "127.0.0.1:7");
        for url in [
            "redis://u:s3cret@h:99999999/",
            "redis://u:s3cret@h/not-a-number",
            "redis:s3cret",
        ] {
            let error = Address::parse(url, true).err().expect(url);
            let shown = format!("{error} {error:?}");
            assert!(
                !shown.contains("s3cret") && shown.contains("`redis:…`"),
                "{shown}"
            );
        }
    }

    #[test]
    fn the_url_may_ask_for_the_older_protocol() {
        let both = Address::parse("redis://127.0.0.1/", true).expect("valid");
        assert!(both.fallback().is_some());
        let one = Address::parse("redis://127.0.0.1/?protocol=resp2", true).expect("valid");
        assert!(one.fallback().is_none());
    }
}
