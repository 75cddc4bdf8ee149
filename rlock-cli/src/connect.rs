//! Makes a client of the store that `--url` or `RLOCK_URL` names.

use std::time::Duration;

use clap::Args;
use rlock_core::{LockClient, LockClientBuilder, StoreUrl};

use crate::{
    duration::response_timeout,
    exit::{Failure, Status},
    user,
};

/// Where the locks are.
#[derive(Debug, Args)]
pub(crate) struct StoreOptions {
    /// The URL of the store, or several URLs for the servers of a quorum
    ///
    /// `redis://host:6379/`, `rediss://…` for TLS, `unix:///path`, `redis-sentinel://host1,host2,host3/service`,
    /// `redis-cluster://host1,host2,host3` or `postgres://user@host/database`. Repeat the option for each server of a
    /// quorum, or separate the URLs by spaces. Other users of the machine can read arguments: pass a URL with a password in
    /// `RLOCK_URL`.
    #[arg(
        long = "url",
        env = "RLOCK_URL",
        hide_env_values = true,
        value_name = "URL",
        value_delimiter = ' ',
        global = true,
        display_order = 98
    )]
    urls: Vec<String>,
    /// The prefix of the names of keys on the server
    ///
    /// Processes exclude each other only if they use the same prefix.
    #[arg(
        long,
        env = "RLOCK_PREFIX",
        default_value = "lock:",
        global = true,
        display_order = 99
    )]
    pub(crate) prefix: String,
    /// How long one request may remain without a reply: by default 2s, and 5s for `rlock doctor`
    ///
    /// After that time, `rlock` replaces the connection and sends the request again, or gives up if it may not wait. A
    /// longer time, of at most a minute, suits a slow network. If the store does not reply, the first attempt to acquire a
    /// lock and its release take that long, even with `--no-wait`.
    #[arg(
        long,
        env = "RLOCK_RESPONSE_TIMEOUT",
        value_name = "DURATION",
        value_parser = response_timeout,
        global = true,
        display_order = 99
    )]
    response_timeout: Option<Duration>,
}

impl StoreOptions {
    /// Returns how long one request may remain without a reply.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout_or(Duration::from_secs(2))
    }

    /// Returns the given response time-out, or this default.
    pub(crate) fn response_timeout_or(&self, default: Duration) -> Duration {
        self.response_timeout.unwrap_or(default)
    }

    /// Returns the URL if it is the only one, and names a Postgres database.
    pub(crate) fn postgres_url(&self) -> Option<&str> {
        let [url] = &self.urls[..] else {
            return None;
        };
        let url = url.trim();
        let (scheme, _) = url.split_once(':')?;
        matches!(scheme, "postgres" | "postgresql").then_some(url)
    }

    /// Returns the URL of the store, or the failure if there is none. Several URLs name the servers of a quorum.
    pub(crate) fn url(&self) -> Result<StoreUrl, Failure> {
        // White space around a URL leaves empty parts.
        let urls = self.urls.iter().map(|url| url.trim());
        let urls: Vec<&str> = urls.filter(|url| !url.is_empty()).collect();
        if urls.is_empty() {
            let message = "no store is named: give its URL with `--url` or in the environment variable RLOCK_URL";
            return Err(Failure::new(Status::USAGE, message));
        }
        if urls.iter().any(|url| is_embedded(url)) {
            let message = "the embedded store (`memory:`) lives in one process: a lock there locks nothing; \
                 give the URL of a server";
            return Err(Failure::new(Status::USAGE, message));
        }
        Ok(match urls[..] {
            [url] => StoreUrl::from(url),
            _ => StoreUrl::quorum(urls),
        })
    }
}

/// Connects to the store.
pub(crate) async fn connect(store: &StoreOptions) -> Result<LockClient, Failure> {
    connect_within(store, Duration::ZERO).await
}

/// Connects to the store. If it is unreachable, waits within the limit, which the client logs. If the store refuses the
/// client, fails at once.
pub(crate) async fn connect_within(
    store: &StoreOptions,
    limit: Duration,
) -> Result<LockClient, Failure> {
    let builder = builder(store).connect_retry_for(limit);
    Ok(builder.connect(store.url()?).await?)
}

/// Returns the builder of clients of this command.
pub(crate) fn builder(store: &StoreOptions) -> LockClientBuilder {
    // One connection suffices for one lock, and takes less time to open than two.
    LockClient::builder()
        .prefix(&store.prefix)
        .response_timeout(store.response_timeout())
        .service(format!("rlock/{}", user::name()), env!("CARGO_PKG_VERSION"))
        .second_connection(false)
}

fn is_embedded(url: &str) -> bool {
    url.split_once(':')
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("memory"))
}
