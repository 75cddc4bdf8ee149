//! Opens a connection to the master that the address leads to, unless it is a replica, a former master, or a server that a quorum has already.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use redis::ProtocolVersion;
use rlock_proto::store::Notification;
use tokio::time::timeout;

use super::Link;
use crate::{
    store::{
        StoreError,
        redis::{
            address::LOGIN,
            connection::{Connection, Inbox, Opening},
            dial::boxed,
            errors::{
                IsFormerMaster, IsReplica, NO_RESP3, classify_connect, not_yet, refuses_protocol,
            },
            sentinel::LOGIN as SENTINELS_LOGIN,
        },
    },
    wording::shown,
};

/// How long a reply of the Sentinels is trusted. If opening a connection takes longer, the link asks them again.
const NAMED: Duration = Duration::from_millis(100);

impl Link {
    pub(super) async fn open(
        self: &Arc<Self>,
        within: Duration,
    ) -> Result<Arc<Connection>, StoreError> {
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed) + 1;
        let opening = async {
            // The Sentinels name the current master.
            let master = async || {
                let server = self.address.server(within).await;
                server.map_err(|error| classify_connect(error, SENTINELS_LOGIN))
            };
            let (server, named) = (master().await?, Instant::now());
            let server = server.with_login().await;
            let server = server.map_err(|error| classify_connect(error, LOGIN))?;
            let open = |protocol| {
                let opening = Opening {
                    epoch,
                    options: &self.options,
                    inbox: self.inbox(epoch, server.promotion),
                    channel: self.channel(),
                    redirects_to: self.reports_to(),
                };
                boxed(Connection::open(opening, &server, protocol))
            };
            let mut opened = open(server.protocol()).await;
            if server.protocol() != ProtocolVersion::RESP2
                && opened.as_ref().is_err_and(refuses_protocol)
            {
                opened = open(ProtocolVersion::RESP2).await;
            }
            let opened = opened.map_err(|error| server.classify(error))?;
            // The Sentinels may have replaced a silent server, which does not know it yet.
            if named.elapsed() > NAMED && master().await?.info.addr() != server.info.addr() {
                return Err(not_yet(IsFormerMaster));
            }
            if opened.is_replica {
                return Err(not_yet(IsReplica));
            }
            Ok(opened)
        };
        let late = |_| Err(not_yet(self.silence(within)));
        let opened = timeout(within, boxed(opening)).await.unwrap_or_else(late);
        // The request that waits for this connection has not been sent.
        let mut opened = opened.map_err(StoreError::not_executed)?;
        if let (Some(run_ids), Some(run_id)) = (&self.options.run_ids, opened.run_id.take()) {
            let registration = run_ids.enter(self.address.to_string(), run_id);
            // Transient, because the address may lead to another server a moment later.
            opened.registration = Some(registration.map_err(not_yet)?);
        }
        Ok(Arc::new(opened))
    }

    /// Describes a server that did not reply to an attempt to connect. A server that has replied before speaks the protocol.
    fn silence(&self, within: Duration) -> String {
        let mut error = format!("no reply within {}", shown(within));
        if self.latest_usage().is_none() && self.is_background() {
            if self.address.endpoint.uses_tls() {
                error += "; the server may not speak TLS on this port";
            }
            if self.address.protocol() != ProtocolVersion::RESP2 {
                error += NO_RESP3;
            }
        }
        error
    }

    /// Returns the client's channel, to which the background connection subscribes.
    fn channel(&self) -> Option<String> {
        let channel = || self.commands.keyspace.channel(self.options.client);
        self.is_background().then(channel)
    }

    /// Returns the reader of the messages of the connection with this epoch, whose server has this promotion.
    fn inbox(self: &Arc<Self>, epoch: u64, promotion: u64) -> Inbox {
        let link = Arc::downgrade(self);
        let listener = move |event| match (event, link.upgrade()) {
            (Notification::Disconnected, Some(link)) => {
                link.ended.fetch_max(epoch, Ordering::SeqCst);
                link.give_up(epoch);
            }
            (event, Some(link)) if promotion == link.address.promotion() => (link.listener)(event),
            _ => {}
        };
        Inbox {
            listener: Arc::new(listener),
            commands: Arc::clone(&self.commands),
            client: self.options.client,
        }
    }

    /// Returns the id of the connection to which the server sends its reports of changes, if not this one.
    pub(in crate::store) fn reports_to(&self) -> Option<i64> {
        self.background.as_ref()?.present()?.id
    }
}
