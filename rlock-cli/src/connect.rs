//! The client of the store that the options name.

use rlock_core::LockClient;

use crate::{
    cli::StoreOptions,
    exit::{Failure, Status},
    user,
};

/// Connects to the store. Several URLs name the servers of a quorum.
pub(crate) async fn connect(store: &StoreOptions) -> Result<LockClient, Failure> {
    if store.urls.iter().any(|url| is_embedded(url)) {
        return Err(embedded());
    }
    // One connection suffices for one lock, and takes less time to open than two.
    let builder = LockClient::builder()
        .prefix(&store.prefix)
        .service(format!("rlock/{}", user::name()), env!("CARGO_PKG_VERSION"))
        .caller_connection(false);
    let client = match store.urls.as_slice() {
        [url] => builder.connect(url).await,
        urls => builder.quorum(urls).await,
    };
    Ok(client?)
}

/// Returns the failure for the URL of an embedded store.
pub(crate) fn embedded() -> Failure {
    Failure::new(
        Status::USAGE,
        "the embedded store (`memory:`) lives in one process: a lock there locks nothing; \
         give the URL of a server",
    )
}

fn is_embedded(url: &str) -> bool {
    url.split_once(':')
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("memory"))
}
