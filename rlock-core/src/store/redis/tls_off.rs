//! Without the feature `tls` there are no certificates.

use redis::{Client, IntoConnectionInfo, RedisResult};

#[derive(Debug, Clone, Default)]
pub(crate) struct Tls {}

impl Tls {
    #[allow(clippy::unused_self, reason = "with the feature it has certificates")]
    pub(super) fn open(&self, info: impl IntoConnectionInfo) -> RedisResult<Client> {
        Client::open(info)
    }
}
