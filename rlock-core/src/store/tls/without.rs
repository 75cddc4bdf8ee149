//! Stands in for certificates without the feature `tls`, which then have no options.

use redis::{Client, ConnectionInfo, RedisResult};

use crate::error::LockError;

#[derive(Debug, Clone, Default)]
pub(crate) struct Tls(());

#[expect(clippy::unused_self, reason = "with the feature it has certificates")]
impl Tls {
    pub(crate) const IS_SUPPORTED: bool = false;

    #[expect(
        clippy::unnecessary_wraps,
        reason = "with the feature it checks the certificates"
    )]
    pub(crate) fn check(&self, _uses_tls: bool) -> Result<(), LockError> {
        Ok(())
    }

    #[expect(clippy::unused_async, reason = "with the feature it asks the provider")]
    pub(in crate::store) async fn current(&self) -> RedisResult<Self> {
        Ok(self.clone())
    }

    pub(in crate::store) fn open(&self, info: ConnectionInfo) -> RedisResult<Client> {
        Client::open(info)
    }
}
