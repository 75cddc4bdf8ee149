//! Opens and sets up one session of the server, prepares the statements, and receives the client's notifications.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rlock_proto::store::{Listener, Notification};
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use super::{
    address::PostgresEndpoint,
    dial::{Ended, Receive},
    errors::{classify_connect, classify_end},
    pooler,
    requests::Request,
    statements::Statements,
    transaction::Transactions,
};
use crate::{
    fingerprint::fingerprint,
    store::{StoreError, keyspace::Keyspace, options::StoreOptions, tasks::AbortOnDrop},
};

/// The pause before the client looks again whether a former session has ended.
const ENDS: Duration = Duration::from_millis(10);

/// The beginning of a part of a message that is too long for one notification. The parts of a message follow each other.
const PART: char = '+';
/// The bytes of a message that fit into one notification, together with what precedes a part.
const MOST_BYTES: usize = 7_900;
/// The most bytes of a message that is not complete. Each role of the database may send parts.
const MOST_PENDING: usize = 1 << 20;

/// The settings of a session that no pooler serves.
const OF_SESSION: &str = "SET default_transaction_isolation = 'read committed'; SET client_min_messages = 'warning';
  SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 25000;
  SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout';";
/// The beginning of the name that a process has while it executes a request that came through a pooler.
const POOLED: &str = "rlock-pooled:";

/// A session, which may have ended since it was opened.
pub(super) struct Session {
    /// The number of this session among those of its link.
    pub(super) epoch: u64,
    /// The process that may still execute its requests after its end.
    pub(super) executor: Executor,
    /// Whether a pooler drops the notifications for this client.
    pub(super) polls: bool,
    client: Client,
    statements: Statements,
    /// When the last reply arrived.
    heard: Mutex<Instant>,
    _driver: AbortOnDrop,
}

/// The process of the server that executes the requests of a session.
#[derive(Clone)]
pub(super) enum Executor {
    /// This process, which serves no other session.
    Process(i32),
    /// Whichever process has this name, which a request behind a pooler gives it for its transaction.
    Named(String),
}

/// What a link needs to open its next session.
pub(super) struct Opening<'a> {
    pub(super) epoch: u64,
    pub(super) endpoint: &'a PostgresEndpoint,
    pub(super) options: &'a StoreOptions,
    pub(super) within: Duration,
    /// The process that executed the requests of the session before.
    pub(super) former: Option<Executor>,
    /// Receives the notifications of a session that listens.
    pub(super) inbox: Option<Inbox>,
    /// Called when the session has ended.
    pub(super) ended: Ended,
}

impl Session {
    /// Opens a session once the former one has ended, so that no request of that one runs later than one of this session.
    pub(super) async fn open(opening: Opening<'_>) -> Result<Self, StoreError> {
        let Opening {
            epoch,
            endpoint,
            options,
            within,
            former,
            inbox,
            ended,
        } = opening;
        let failed = |error: Error| classify_connect(&error);
        let (schema, listens) = (&endpoint.schema, inbox.is_some());
        let name = session_name(options, &schema.name);
        let receive: Receive = match inbox {
            Some(mut inbox) => Box::new(move |payload| inbox.receive(payload)),
            None => Box::new(|_| {}),
        };
        let (client, driver) = endpoint.dial(options, within, receive, ended).await?;
        let process = pooler::process(&client).await.map_err(failed)?;
        let has_pooler = process.is_behind_pooler;
        if has_pooler && endpoint.is_direct {
            tracing::info!(address = %endpoint, "the direct connection leads to a pooler, which has to keep sessions");
        }
        let is_pooled = has_pooler && !endpoint.is_direct;
        let polls = is_pooled && !endpoint.has_direct();
        let (executor, transactions) = if is_pooled {
            let link = if listens { 'b' } else { 'c' };
            let name = format!("{POOLED}{}:{link}{epoch}", options.client);
            let settings = settings(options, "SET LOCAL");
            // If the end of a transaction is lost on the way to the pooler, the server must not keep its rows.
            let most_idle = options.response_timeout.as_millis();
            let polled = if polls {
                "SET LOCAL rlock_client.polls = on;"
            } else {
                ""
            };
            let transactions = Transactions::with(&format!(
                "{settings} {polled} SET LOCAL idle_in_transaction_session_timeout = {most_idle};
                 SET LOCAL application_name = '{name}'"
            ));
            (Executor::Named(name), Some(Arc::new(transactions)))
        } else {
            let settings = settings(options, "SET");
            let set_up = format!("{settings} {OF_SESSION} SET application_name = '{name}'");
            client.batch_execute(&set_up).await.map_err(failed)?;
            (Executor::Process(process.id), None)
        };
        if let Some(former) = former {
            let ended = end(&client, &former, &name).await;
            ended.map_err(|error| classify_end(&error))?;
        }
        if !endpoint.is_direct {
            schema.ensure(&client, options.connect_timeout).await?;
        } else if !schema.exists(&client).await? {
            // A wrong `direct` must not create tables elsewhere.
            let source = format!(
                "`direct` leads to a database without the tables of the schema `{}`, which the session of the pooler creates; \
                 name the database to which the pooler leads",
                schema.name
            );
            return Err(StoreError::new(true, false, source));
        }
        let statements = Statements::new(&client, transactions.as_ref(), schema).await;
        if listens && !is_pooled {
            let client_id = options.client;
            let listen = format!("LISTEN \"rlock:{client_id}\"");
            client.batch_execute(&listen).await.map_err(failed)?;
            // A session with this lock listens, because it listened before.
            let proof = format!("SELECT pg_advisory_lock_shared({})", proof_of(client_id));
            client.batch_execute(&proof).await.map_err(failed)?;
        }
        Ok(Self {
            epoch,
            executor,
            polls,
            client,
            statements: statements.map_err(failed)?,
            heard: Mutex::new(Instant::now()),
            _driver: driver,
        })
    }

    /// Returns the name of the database that executes its requests, which differs from that of all others.
    pub(super) async fn database(&self) -> Result<String, StoreError> {
        let row = self.client.query_typed_one(pooler::DATABASE, &[]).await;
        row.map(|row| row.get(0))
            .map_err(|error| classify_connect(&error))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns when the last reply arrived.
    pub(super) fn heard(&self) -> Instant {
        *self.last_reply()
    }

    fn last_reply(&self) -> MutexGuard<'_, Instant> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a request. The first poll puts it into the queue of the session, before any later one.
    pub(super) async fn execute(&self, request: &Request) -> Result<Vec<Row>, Error> {
        let statement = (request.statement)(&self.statements);
        let reply = statement.execute(&self.client, &request.parameters).await;
        *self.last_reply() = Instant::now();
        reply
    }
}

/// Returns statements that `set` what each request depends on. The plans are those for many rows, even if the tables were empty when
/// they were made. Grants are durable, whatever the server's own setting.
fn settings(options: &StoreOptions, set: &str) -> String {
    let row_wait = (options.response_timeout / 4).as_millis();
    let is_local = set == "SET LOCAL";
    format!(
        "{set} lock_timeout = {row_wait}; {set} enable_seqscan = off; {set} plan_cache_mode = 'force_generic_plan';
         SELECT set_config('synchronous_commit', coalesce(nullif(nullif(it, 'off'), 'local'), 'on'), {is_local})
           FROM current_setting('synchronous_commit') it;"
    )
}

/// Ends the process that executed the requests of the former session, and waits until it has ended. A process behind a pooler serves
/// other clients next, so this only waits until it has executed its last request.
async fn end(client: &Client, former: &Executor, name: &str) -> Result<(), Error> {
    let end = match former {
        Executor::Process(process) => format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE pid = {process} AND pid <> pg_backend_pid() AND application_name = '{name}'"
        ),
        Executor::Named(name) => {
            format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{name}'")
        }
    };
    while client.query_typed_opt(&end, &[]).await?.is_some() {
        sleep(ENDS).await;
    }
    Ok(())
}

/// Returns the name of a client's sessions, by which others find those of the same schema and prefix.
fn session_name(options: &StoreOptions, schema: &str) -> String {
    format!(
        "rlock:{}:{}",
        options.client,
        place(schema, &options.prefix)
    )
}

/// Returns the end of the names of all sessions with this schema and prefix.
pub(super) fn place(schema: &str, prefix: &str) -> String {
    format!("{:016x}", fingerprint(format!("{schema}/{prefix}").bytes()))
}

/// Returns the advisory lock that the listening session of a client shares, as `rlock.listens` computes it.
fn proof_of(client: Uuid) -> i64 {
    let (_, low) = client.as_u64_pair();
    i64::from_be_bytes(low.to_be_bytes())
}

/// Returns the parts of a message.
pub(super) fn parts_of(message: &str) -> Vec<String> {
    if message.len() <= MOST_BYTES {
        return vec![message.to_owned()];
    }
    let (mut parts, mut rest) = (Vec::new(), message);
    while !rest.is_empty() {
        let fits = |end: &usize| rest.is_char_boundary(*end);
        let end = (0..=rest.len().min(MOST_BYTES)).rev().find(fits);
        let (part, left) = rest.split_at(end.unwrap_or(rest.len()));
        // Numbered, because the server delivers equal notifications of one transaction once.
        let number = parts.len();
        let more = u8::from(!left.is_empty());
        parts.push(format!("{PART}{more}{number} {part}"));
        rest = left;
    }
    parts
}

/// Reads the notifications of one session.
pub(super) struct Inbox {
    pub(super) listener: Listener,
    pub(super) options: StoreOptions,
    pub(super) keyspace: Keyspace,
    /// The parts of a message that is not complete.
    parts: String,
}

impl Inbox {
    pub(super) fn new(listener: Listener, options: StoreOptions) -> Self {
        Self {
            listener,
            keyspace: Keyspace::new(options.prefix.clone()),
            options,
            parts: String::new(),
        }
    }

    fn receive(&mut self, payload: &str) {
        let whole = match payload.strip_prefix(PART) {
            None => Some(payload.to_owned()),
            Some(part) => self.complete(part),
        };
        let read =
            |text: String| (self.keyspace).read_message(self.options.client, text.as_bytes());
        if let Some(notification) = whole.and_then(read) {
            if let Notification::Granted { fence, .. } = &notification {
                self.options.floor.note(*fence);
            }
            (self.listener)(notification);
        }
    }

    /// Adds a part. Returns the message if it was the last one.
    fn complete(&mut self, part: &str) -> Option<String> {
        let (head, text) = part.split_once(' ')?;
        if head.get(1..) == Some("0") || self.parts.len() > MOST_PENDING {
            self.parts.clear();
        }
        self.parts.push_str(text);
        head.starts_with('0')
            .then(|| std::mem::take(&mut self.parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_arrives_in_parts_as_it_was_sent() {
        let received = Arc::<Mutex<Vec<Notification>>>::default();
        let log = Arc::clone(&received);
        let listener = Arc::new(move |one| log.lock().expect("no panic").push(one));
        let mut inbox = Inbox::new(listener, StoreOptions::default());
        let messages = ["@short".to_owned(), format!("@{}", "ü".repeat(20_000))];
        for message in &messages {
            let parts = parts_of(message);
            assert!(parts.iter().all(|part| part.len() < 8_000));
            for part in &parts {
                inbox.receive(part);
            }
        }
        let expected = messages.map(|text| Notification::Message(text.into_bytes()));
        assert_eq!(*received.lock().expect("no panic"), expected);
    }
}
