//! Makes a client of the store that `--url` or `RLOCK_URL` names.

use std::time::Duration;

use clap::Args;
use rlock_core::{LockClient, LockClientBuilder, StoreUrl};

use crate::{
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
}

impl StoreOptions {
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
    let builder = builder(&store.prefix).connect_retry_for(limit);
    Ok(builder.connect(store.url()?).await?)
}

/// Returns the builder of clients of this command.
pub(crate) fn builder(prefix: &str) -> LockClientBuilder {
    // One connection suffices for one lock, and takes less time to open than two.
    LockClient::builder()
        .prefix(prefix)
        .service(format!("rlock/{}", user::name()), env!("CARGO_PKG_VERSION"))
        .second_connection(false)
}

fn is_embedded(url: &str) -> bool {
    url.split_once(':')
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("memory"))
}
