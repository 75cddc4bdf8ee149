//! Tells whether a pooler serves a session: then the login names another process than the one that executes statements.

use std::{convert::Infallible, future};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_postgres::{Client, Error, tls::TlsConnect};

use super::stream::Stream;

/// Names the database of a session, which a pooler may call otherwise.
pub(in crate::store) const DATABASE: &str =
    "SELECT concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, ' ', oid)
  FROM pg_database WHERE datname = current_database()";

/// What is wrong if `direct` leads to another database than the pooler.
pub(in crate::store) const ELSEWHERE: &str = "`direct` leads to another server or database than the pooler, so each renewal would lose its lock; name \
     the database to which the pooler leads";

/// The size of a request to encrypt and a request to cancel.
const MOST_BYTES: usize = 8 + 16;

/// The process that executes the statements of a session, for now if there is a pooler.
pub(super) struct Process {
    pub(super) id: i32,
    /// Whether the login named another one. A pooler makes that one up, because it chooses a process for each transaction, or for each
    /// session.
    pub(super) is_behind_pooler: bool,
}

/// Asks which process executes the statements of a session.
pub(super) async fn process(client: &Client) -> Result<Process, Error> {
    let row = client
        .query_typed_one("SELECT pg_backend_pid()", &[])
        .await?;
    let id = row.get(0);
    Ok(Process {
        id,
        is_behind_pooler: named(client).await != Some(id),
    })
}

/// Returns the process that the login named. `tokio_postgres` shows it only in a request to cancel, which goes nowhere here.
async fn named(client: &Client) -> Option<i32> {
    let (request, mut server) = duplex(MOST_BYTES);
    // The reply to a request to encrypt.
    server.write_all(b"S").await.ok()?;
    let cancel = client.cancel_token();
    cancel.cancel_query_raw(request, Nowhere).await.ok()?;
    let mut written = Vec::new();
    server.read_to_end(&mut written).await.ok()?;
    let (_, end) = written.split_last_chunk::<8>()?;
    Some(i32::from_be_bytes(*end.first_chunk()?))
}

/// Encrypts nothing.
struct Nowhere;

impl TlsConnect<DuplexStream> for Nowhere {
    type Stream = Stream<DuplexStream>;
    type Error = Infallible;
    type Future = future::Ready<Result<Self::Stream, Infallible>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        future::ready(Ok(Stream(stream)))
    }
}
