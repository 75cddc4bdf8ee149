//! The stand-in for certificates without the feature `tls`.

use redis::{Client, ConnectionInfo, RedisResult};

#[derive(Debug, Clone, Default)]
pub(crate) struct Tls(());

impl Tls {
    #[expect(clippy::unused_self, reason = "with the feature it has certificates")]
    pub(super) fn open(&self, info: ConnectionInfo) -> RedisResult<Client> {
        Client::open(info)
    }
}
