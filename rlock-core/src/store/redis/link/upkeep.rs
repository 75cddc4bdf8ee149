//! Connects, and connects again with backoff when a connection fails or is silent, until the client ends. Logs an outage once.

use std::{
    mem,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use rlock_proto::store::{KeyFilter, Notification};

use super::{Link, LinkState};
use crate::{
    backoff::Backoff,
    store::{
        StoreError,
        redis::{
            capabilities,
            connection::Connection,
            dial::boxed,
            errors::{IsFormerMaster, IsReplica},
        },
        retry_while,
        run_ids::SameServer,
    },
    wording::shown,
};

/// The time-out of the first attempt to reconnect.
const FIRST_TIMEOUT: Duration = Duration::from_millis(250);
/// The pause before the next attempt after a server refused this client.
const REFUSED: Duration = Duration::from_secs(2);

/// The time from the loss of a connection until a later one has served a change.
#[derive(Default)]
struct Outage {
    backoff: Backoff,
    is_logged: bool,
    is_logged_as_replica: bool,
    is_end_logged: bool,
}

impl Link {
    /// Connects for the first time. Asks a replica again within the connect time-out, because a balancer or the Sentinels may
    /// lead the next connection to the master.
    pub(in crate::store) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        let within = self.options.connect_timeout;
        let connection = retry_while(is_replica, within, |left| self.open(left)).await?;
        self.check(&connection).await;
        self.begin(connection);
        self.is_counted_up(true);
        Ok(())
    }

    /// Uses this connection from now on.
    fn begin(&self, connection: Arc<Connection>) {
        let epoch = connection.epoch;
        let usage = Some(Arc::clone(&connection.usage));
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = usage;
        self.state.send_replace(LinkState::up(connection));
        // It may have ended before it was the present one, and an idle client sends no request that would notice.
        if self.ended.load(Ordering::SeqCst) == epoch {
            self.give_up(epoch);
        }
        self.leave_former_master();
    }

    /// Keeps a connection up for as long as the client lives.
    pub(in crate::store) async fn keep_up(self: Arc<Self>) {
        let address = &self.address;
        let mut outage = Outage::default();
        loop {
            self.until(false).await;
            self.is_counted_up(false);
            let (usage, began) = (self.latest_usage(), Instant::now());
            // A connection may have failed before this was polled for the first time.
            let was_up = usage.is_some();
            if usage.as_ref().is_some_and(|usage| usage.has_served()) {
                outage = Outage::default();
            }
            if usage.as_ref().is_some_and(|usage| !usage.is_idle(began)) {
                let why = self.state.borrow().error.clone();
                self.log(&mut outage, why.as_ref());
            }
            if usage.is_some_and(|usage| !usage.has_served()) {
                tokio::time::sleep(outage.backoff.next()).await;
            }
            let connection = self.reconnect(was_up, &mut outage).await;
            self.begin(Arc::clone(&connection));
            self.is_counted_up(true);
            // Changes during the outage were not reported. The callers' first connection follows no outage: the background
            // link carried all requests so far, and reports its own outages.
            if was_up || self.is_background() {
                (self.listener)(Notification::SomeChanged(KeyFilter::All));
            }
            tracing::debug!(%address, epoch = connection.epoch, "connected");
            if was_up && let Some(metrics) = &self.metrics {
                metrics.reconnected();
                if outage.is_logged && !mem::replace(&mut outage.is_end_logged, true) {
                    tracing::info!(%address, after = %shown(began.elapsed()), "connected again");
                }
            }
            if !was_up {
                tokio::select! {
                    () = self.check(&connection) => {}
                    // The connection may fail before the checks end.
                    () = self.until(false) => {}
                }
            }
        }
    }

    /// Logs that the connection is lost or silent: one line for the server, not one for each lock or connection.
    fn log(&self, outage: &mut Outage, why: Option<&StoreError>) {
        let (address, is_silent) = (&self.address, self.present().is_some());
        if !self.is_background() {
            return;
        }
        let was_logged = mem::replace(&mut outage.is_logged, true);
        if why.is_some_and(|error| error.source.is::<IsFormerMaster>()) {
            tracing::info!(%address, "a Sentinel names another master, connecting to it");
        } else if why.is_some_and(is_replica) {
            if !mem::replace(&mut outage.is_logged_as_replica, true) {
                tracing::warn!(%address, "the server is a replica, connecting again until it is a master");
            }
        } else if was_logged {
            tracing::debug!(%address, is_silent, "connection lost before it served a change");
        } else if is_silent {
            tracing::info!(%address, "the server is silent, connecting again");
        } else {
            tracing::info!(%address, "connection lost, connecting again");
        }
    }

    /// Logs what the server lacks.
    async fn check(&self, connection: &Connection) {
        if self.is_background() {
            let (options, keyspace) = (&self.options, &self.commands.keyspace);
            let (multiplexed, missing) = (&connection.multiplexed, connection.missing.clone());
            let check = capabilities::check(&self.address, options, keyspace, multiplexed, missing);
            boxed(check).await;
        }
    }

    fn is_counted_up(&self, is_up: bool) {
        if let Some(metrics) = &self.metrics {
            metrics.is_up(is_up);
        }
    }

    /// Retries until there is another connection.
    async fn reconnect(self: &Arc<Self>, was_up: bool, outage: &mut Outage) -> Arc<Connection> {
        let (address, longest) = (&self.address, self.options.connect_timeout);
        // The discovery of a cluster reports nodes that cannot be reached.
        let is_of_cluster = self.commands.keyspace.are_of_cluster;
        let mut is_missed = was_up || is_of_cluster || !self.is_background();
        let mut is_same = false;
        // With a short time-out, the end of an outage is noticed sooner.
        let mut timeout = FIRST_TIMEOUT.min(longest);
        loop {
            let error = match self.open(timeout).await {
                Ok(connection) => return connection,
                Err(error) => error,
            };
            if error.source.is::<SameServer>() && !mem::replace(&mut is_same, true) {
                tracing::error!(%error, "a server of the quorum is not counted");
            }
            tracing::debug!(%address, %error, "connecting failed");
            if !mem::replace(&mut is_missed, true) {
                tracing::warn!(%address, %error, "the server cannot be reached yet");
                outage.is_logged_as_replica = is_replica(&error);
            }
            // Servers count and log wrong passwords.
            let refused = (!error.transient).then_some(REFUSED);
            let pause = refused.unwrap_or_else(|| outage.backoff.next());
            if was_up && (is_replica(&error) || !outage.is_logged) {
                self.log(outage, Some(&error));
            }
            // A connection that is only silent may still reply.
            self.state.send_if_modified(|state| {
                let is_down = state.connection.is_none();
                if is_down {
                    state.error = Some(error);
                }
                is_down
            });
            tokio::time::sleep(pause).await;
            timeout = (timeout * 2).min(longest);
        }
    }
}

fn is_replica(error: &StoreError) -> bool {
    error.source.is::<IsReplica>()
}
