//! `StoreUrl`: the address of a store as a user writes it: memory, one server, Sentinel, Cluster, a quorum or Postgres.

use std::{borrow::Cow, fmt};

use crate::{
    error::LockError,
    store::endpoint::{Endpoint, redacted},
};

/// The address of a store: a URL as text, or a [quorum](Self::quorum) of several URLs.
///
/// [`LockClient::connect`](crate::LockClient::connect) and its relatives take anything that converts into a
/// `StoreUrl`, so a URL is usually passed as text. [`from_env`](Self::from_env) reads it from the environment.
///
/// | URL | store |
/// | --- | --- |
/// | `redis://[user:password@]host[:port][/database]` | one Redis or Valkey server |
/// | `rediss://…` | the same over TLS (feature `tls`) |
/// | `unix:///path/to/socket[?db=0&user=…&pass=…]` | the same over a Unix socket |
/// | `redis-sentinel://[user:password@]host[:port],host[:port],…/service[/database]` | the master that these Sentinels know. The client asks again when a connection is lost, or the server was demoted. User and password are the master's; `?sentinel_user=…&sentinel_password=…` are for the Sentinels |
/// | `rediss-sentinel://…` | the same over TLS, to the Sentinels too |
/// | `redis-cluster://[user:password@]host[:port],host[:port],…` | the Redis Cluster to which these nodes belong. The client learns the other nodes from them |
/// | `rediss-cluster://…` | the same over TLS |
/// | `postgres://[user[:password]@]host[:port],…/database[?schema=…&durability=…]` | a Postgres database, version 13 or later (feature `postgres`), over TLS with `?sslmode=require`. If the URL names several hosts, the client uses the first one that takes writes. The schema is `rlock` unless the URL names another, and the first client creates it. With `durability=memory` no lock waits for the disk, and a crash of the server loses all. If the URL leads to a pooler, `direct=host:port` names the server itself |
/// | `memory:` | a new embedded store |
/// | `memory:name` | the embedded store of that name, shared by this process's clients |
///
/// `?protocol=resp2` keeps a server that supports RESP3 on RESP2. `valkey://`, `valkeys://`, `redis+unix://` and
/// `valkey+unix://` are other names of `redis://`, `rediss://` and `unix://`, and `postgresql://` is one of `postgres://`. A user without a password
/// (`redis://user@host`) logs in with an empty password, which is sufficient for a user with `nopass`.
///
/// A plain list of URLs is not accepted, because it could name a quorum or the nodes of a cluster. Write
/// [`StoreUrl::quorum`] for independent servers, and `redis-cluster://a,b,c` for the nodes of a cluster.
///
/// Text is checked when a client is made of it, so the conversion cannot fail. `Display` and `Debug` show schemes and
/// hosts, but no user, no password and no option.
///
/// # Examples
///
/// ```no_run
/// use rlock_core::{LockClient, StoreUrl};
///
/// # async fn connect() -> Result<(), rlock_core::LockError> {
/// let client = LockClient::connect("redis://127.0.0.1:6379/").await?;
/// # drop(client);
/// let client = LockClient::connect(StoreUrl::from_env()?).await?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
///
/// A log may show the store:
///
/// ```
/// use rlock_core::StoreUrl;
///
/// let store = StoreUrl::from("redis://locker:s3cret@redis.internal/");
/// assert_eq!(store.to_string(), "redis://…@redis.internal/…");
/// ```
#[derive(Clone)]
pub struct StoreUrl(Named);

#[derive(Clone)]
enum Named {
    One(String),
    Quorum(Vec<String>),
}

impl StoreUrl {
    /// Names a quorum of independent servers. A call has the lock as soon as a majority of the servers has granted it.
    /// Redis calls this algorithm [Redlock].
    ///
    /// Each URL names one server or Sentinel service, as listed [above](Self). All clients must name the same servers
    /// in the same order. Three servers tolerate the failure of one, and five that of two; a fourth server does not
    /// help. The servers must fail independently, so put them on different machines and disks, without replication
    /// between them.
    ///
    /// A server that the list names by two addresses would count twice. The client therefore compares the `run_id` in
    /// the servers' `INFO`, and refuses such a list when it connects. A
    /// [lazy](crate::LockClientBuilder::connect_lazy) client, and one that reaches the server later, logs an error and
    /// does not count the duplicate. A client cannot check a server that hides its `run_id`.
    ///
    /// - **An acquire** asks all servers at once. The lease counts from before the first request, less 1 % and 2 ms
    ///   for clocks that run at different speeds. The call returns as soon as a majority has granted the lock. If a
    ///   majority has replied but not granted it, the client waits for the other servers ten times as long as the
    ///   majority took, at least 20 and at most 250 ms. If only a minority grants the lock, the client releases it
    ///   there.
    /// - **A release** goes to all servers. A server that is unreachable for more than about four
    ///   seconds keeps the lock until its lease ends there.
    /// - **A server that restarts** takes part again as soon as it is reachable. If it has lost its data, the current
    ///   holders do without its grant until they release their locks.
    /// - **Waiters** are notified by a release at every server, and ask again after random pauses, so they are not
    ///   served in order.
    /// - **Fencing tokens** are the largest that a majority has returned. They grow as long as the clocks of the
    ///   servers differ by less than the shortest lease.
    ///
    /// # Limits
    ///
    /// A quorum costs one request per server and tolerates the failure of a minority, but it cannot make a lock safer
    /// than a lease is:
    ///
    /// - A process that is paused for longer than its lease acts once more when it resumes. That is
    ///   the core of [Martin Kleppmann's critique][critique]. Storage that checks the
    ///   [fencing token](crate::Token) refuses the late write.
    /// - The clocks must run at about the same speed. A server whose clock jumps forward ends its leases early, so a
    ///   majority of such servers admits a second holder, which the client cannot detect. [Antirez' reply][reply]
    ///   argues that such jumps can be prevented.
    /// - **A server that restarts without its data votes again.** Suppose that servers 1, 2 and 3 of five grant a
    ///   lock, 3 restarts empty, and 1 and 2 become unreachable. Then 3, 4 and 5 can grant it a second time. To
    ///   prevent that, let servers keep their data (`appendonly yes`, `appendfsync always`), or keep a crashed server
    ///   down for longer than the longest lease. The second holder still has the larger token, unless the clocks of
    ///   these servers are behind by more than the time between the two grants.
    ///
    /// [Redlock]: https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
    /// [critique]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
    /// [reply]: http://antirez.com/news/101
    ///
    /// # Errors
    ///
    /// Making the client returns
    ///
    /// - [`LockError::InvalidOption`] for an invalid URL, for one that names neither a server nor a Sentinel service,
    ///   and for a list that is empty, has more than 32 URLs or names a server twice.
    /// - [`LockError::Unavailable`] if no majority replies within the connect time-out. The text
    ///   names each missing server. Servers that are still unreachable join later.
    /// - [`LockError::Refused`] if so many servers refuse the client that no majority is left.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), rlock_core::LockError> {
    /// use rlock_core::{LockClient, StoreUrl};
    ///
    /// let client = LockClient::connect(StoreUrl::quorum([
    ///     "redis://one.example.com/",
    ///     "redis://two.example.com/",
    ///     "redis://three.example.com/",
    /// ]))
    /// .await?;
    /// client.lock("order:42").run(async { /* one at a time */ }).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn quorum(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(Named::Quorum(urls.into_iter().map(Into::into).collect()))
    }

    /// Returns the SQL that creates the tables and functions of this Postgres URL, in its schema and with its durability. Execute
    /// it as a migration if the roles of your services may not create them.
    ///
    /// The first statement creates what is missing. You can execute it again, even while clients run: it then repairs functions
    /// that were changed by hand, and changes nothing else. It fails if the schema has tables of another version or of another
    /// durability. The next statements grant the `role` what it needs; without a role, they are comments.
    /// The command `rlock postgres schema` prints the same.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for an invalid URL, and for one of another store.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::StoreUrl;
    ///
    /// let store = StoreUrl::from("postgres://app@db.internal/app?schema=locks");
    /// let sql = store.postgres_schema(Some("app"))?;
    /// assert!(sql.contains(r#"GRANT USAGE ON SCHEMA "locks" TO "app";"#));
    /// # Ok::<(), rlock_core::LockError>(())
    /// ```
    #[cfg(feature = "postgres")]
    pub fn postgres_schema(&self, role: Option<&str>) -> Result<String, LockError> {
        match self.endpoint()? {
            Endpoint::Postgres(database) => Ok(database.migration(role)),
            _ => Err(LockError::invalid_option(
                "url",
                format!("`{self}`"),
                "only a Postgres database has a schema; give a URL that begins with `postgres://`",
            )),
        }
    }

    pub(crate) fn endpoint(&self) -> Result<Endpoint, LockError> {
        match &self.0 {
            Named::One(url) => Endpoint::parse(url),
            Named::Quorum(urls) => Endpoint::quorum(urls),
        }
    }
}

impl From<&str> for StoreUrl {
    /// Names the store of this URL. White space around the text is ignored, because a file often ends with a new line.
    fn from(url: &str) -> Self {
        Self(Named::One(url.trim().to_owned()))
    }
}

impl From<String> for StoreUrl {
    fn from(url: String) -> Self {
        Self::from(url.as_str())
    }
}

impl From<&String> for StoreUrl {
    fn from(url: &String) -> Self {
        Self::from(url.as_str())
    }
}

impl From<Cow<'_, str>> for StoreUrl {
    fn from(url: Cow<'_, str>) -> Self {
        Self::from(&*url)
    }
}

impl From<&StoreUrl> for StoreUrl {
    fn from(url: &StoreUrl) -> Self {
        url.clone()
    }
}

/// Shows schemes and hosts, separated by spaces as in `RLOCK_URL`, and `…` in place of all else.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = match &self.0 {
            Named::One(url) => redacted(url),
            Named::Quorum(urls) => urls
                .iter()
                .map(|url| redacted(url))
                .collect::<Vec<_>>()
                .join(" "),
        };
        f.pad(&shown)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreUrl").field(&self.to_string()).finish()
    }
}

/// The requirement of the conversions from lists. No type meets it, so the compiler says what to write in place of the
/// list.
#[diagnostic::on_unimplemented(
    message = "a list of URLs does not name a store",
    label = "this could be a quorum or the nodes of a cluster",
    note = "write `StoreUrl::quorum([\"redis://a\", \"redis://b\", \"redis://c\"])` for independent servers",
    note = "write `\"redis-cluster://a,b,c\"` for the nodes of a cluster",
    note = "write `\"redis-sentinel://a,b,c/service\"` for the Sentinels of a service"
)]
#[doc(hidden)]
pub trait NamedByList<L> {
    fn never(list: L) -> Self;
}

macro_rules! refuse_lists {
    ($([$($parameters:tt)*] $list:ty;)*) => { $(
        #[doc(hidden)]
        impl<$($parameters)*> From<$list> for StoreUrl
        where
            Self: NamedByList<$list>,
        {
            fn from(list: $list) -> Self {
                Self::never(list)
            }
        }
    )* };
}

refuse_lists! {
    [T, const N: usize] [T; N];
    ['a, T, const N: usize] &'a [T; N];
    ['a, T] &'a [T];
    [T] Vec<T>;
    ['a, T] &'a Vec<T>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGIN: &str = "user:s3cret";

    #[test]
    fn text_in_each_form_names_the_same_store() {
        let url = String::from("redis://h/");
        for store in [
            StoreUrl::from("redis://h/"),
            StoreUrl::from(&url),
            StoreUrl::from(&StoreUrl::from(Cow::from(&url))),
            StoreUrl::from(Cow::from(url.clone())),
            StoreUrl::from(url),
        ] {
            let endpoint = store.endpoint().expect("valid");
            assert!(matches!(endpoint, Endpoint::Server(server) if server.to_string() == "h:6379"));
        }
    }

    #[test]
    fn the_new_line_at_the_end_of_a_file_is_no_part_of_a_url() {
        for (text, url) in [
            ("memory:jobs\n", "memory:jobs"),
            (
                " redis-sentinel://h/orders\r\n",
                "redis-sentinel://h/orders",
            ),
            ("unix:///redis.sock\n", "unix:///redis.sock"),
        ] {
            let StoreUrl(Named::One(kept)) = StoreUrl::from(text) else {
                panic!("{text:?} is one URL")
            };
            assert_eq!(kept, url);
        }
    }

    #[test]
    fn a_quorum_accepts_every_iterator_of_urls() {
        let urls = vec![String::from("redis://a/"), String::from("unix:///b.sock")];
        for store in [
            StoreUrl::quorum(["redis://a/", "unix:///b.sock"]),
            StoreUrl::quorum(&urls),
            StoreUrl::quorum(urls.iter().map(String::as_str)),
            StoreUrl::quorum(urls),
        ] {
            let Ok(Endpoint::Quorum(servers)) = store.endpoint() else {
                panic!("{store} is a quorum");
            };
            let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
            assert_eq!(servers, ["a:6379", "/b.sock"]);
        }
    }

    #[test]
    fn it_shows_no_password() {
        for (store, shown) in [
            (
                StoreUrl::from(format!("redis://{LOGIN}@h:7/3")),
                "redis://…@h:7/…",
            ),
            (StoreUrl::from("unix:///s.sock?pass=s3cret"), "unix:…"),
            (StoreUrl::from("s3cret"), "…"),
            (
                StoreUrl::quorum([format!("redis://{LOGIN}@a"), format!("rediss://{LOGIN}@b/")]),
                "redis://…@a rediss://…@b/…",
            ),
            (StoreUrl::quorum([""; 0]), ""),
        ] {
            assert_eq!(store.to_string(), shown);
            assert_eq!(format!("{store:?}"), format!("StoreUrl({shown:?})"));
        }
    }

    /// The URL may be borrowed for less time than a task lives only if it was given as a borrow.
    #[test]
    fn a_client_can_connect_in_another_task() {
        fn can_be_spawned<F: Future + Send + 'static>(_: &F) {}

        let url = String::from("redis://h/");
        can_be_spawned(&crate::LockClient::connect("redis://h/"));
        can_be_spawned(&crate::LockClient::connect(url.clone()));
        can_be_spawned(&crate::LockClient::connect(StoreUrl::from(&url)));
        can_be_spawned(&crate::LockClient::builder().connect(url));
    }
}
