//! The types that inspection returns: a lock with its holders, waiters and queue.

use std::{fmt, time::Duration};

use rlock_proto::{mode::LockMode, owner::OwnerId};

use crate::token::Token;

/// The state of a lock, from [`LockClient::inspect`](crate::LockClient::inspect) and
/// [`LockClient::list`](crate::LockClient::list).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The key of the lock.
    pub key: String,
    /// The owner, as [`Hold::owner`](crate::Hold::owner) returns it; if there are several holders, one of them. The
    /// text begins with `kept` if the holder has released the lock and [`min_hold`](crate::Lock::min_hold) keeps it
    /// taken. It is any other text if other software wrote the lock, and in a list, `(not a hash)` for a key of another
    /// type.
    pub owner: String,
    /// The number of entries of the owner, which is 1 without nested calls. It is 0 for a lock that other software
    /// wrote without a count.
    pub depth: u32,
    /// How long the store keeps the lock without a renewal, or `None` if it does not expire.
    pub ttl: Option<Duration>,
    /// Whether the client [retains](crate::Lock::retain) the lock: it is not held, and the next
    /// call of that client acquires it without a request.
    pub retained: bool,
    /// The holder's reply, or `None` if there was none: the holder's process has ended, is stuck or cut off, or its
    /// client has [`inspectable(false)`](crate::LockClientBuilder::inspectable). Then [`ttl`](Self::ttl) shows when
    /// the lock becomes free.
    pub holder: Option<Holder>,
    /// The address of the holder's client, as the server sees it: `10.0.3.7:52114`. Only
    /// [`inspect`](crate::LockClient::inspect) sets it, for a holder that is connected and does not
    /// reply. The user of the inspecting client needs `+client|list`, and that of the holder
    /// `+client|setname`.
    pub address: Option<String>,
    /// The owners in the store's queue, in order, at most 100. Each stands for all waiting calls of its client, so the
    /// length plus [`waiter_count`](Holder::waiter_count) of the holder is the least number of calls that wait. `rlock
    /// ls` shows this sum.
    pub queued_owners: Vec<String>,
    /// The clients of the first ten owners in [`queued_owners`](Self::queued_owners), as far as they replied. Only
    /// [`inspect`](crate::LockClient::inspect) asks them.
    pub waiters: Vec<Waiter>,
    /// The number of holders, at most 1,000 on a server: 1, unless the lock is [shared](crate::Lock::shared) or has
    /// [permits](crate::Lock::permits). In a [list](crate::LockClient::list), a lock is listed once for each holder
    /// that replies, with 1 here. It is also 1 for a lock that no client holds: [`is_held`](Self::is_held) tells them
    /// apart.
    pub holder_count: usize,
    /// The other holders, at most 99.
    pub other_owners: Vec<String>,
    pub(crate) permits_taken: u64,
    pub(crate) token: Option<u64>,
    /// Whether other clients wait for the lock, as far as the holder knows.
    pub(crate) wanted: bool,
}

impl LockInfo {
    /// Returns whether a client holds or [retains](Self::retained) the lock. Otherwise only
    /// [`min_hold`](crate::Lock::min_hold) keeps it taken, or other software wrote it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.owner_id().is_some()
    }

    /// Returns whether the lock has no holder, and [`min_hold`](crate::Lock::min_hold) keeps it taken.
    pub(crate) fn is_kept(&self) -> bool {
        OwnerId::parse(&self.owner).is_some_and(|owner| owner.is_kept())
    }

    pub(crate) fn owner_id(&self) -> Option<OwnerId> {
        OwnerId::parse(&self.owner).filter(|owner| !owner.is_kept())
    }

    /// Returns the fencing token of the current hold, if its client replied. Otherwise returns the first of the 128
    /// tokens that belong to the last fence on the store, if the store still has it.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        let token = self.token.filter(|token| *token > 0);
        token.map(Token::of_hold)
    }

    /// Returns the mode in which the lock is held.
    #[must_use]
    pub fn mode(&self) -> LockMode {
        OwnerId::parse(&self.owner).map_or(LockMode::Exclusive, |owner| owner.mode())
    }

    /// Returns how many [permits](crate::Lock::permits) the holders take together, or `None` if the lock is held in another
    /// mode. On a server, counts at most 1,000 holders. In a [list](crate::LockClient::list), each entry counts its own
    /// holder only.
    #[must_use]
    pub fn permits_taken(&self) -> Option<u64> {
        matches!(self.mode(), LockMode::Permits { .. }).then_some(self.permits_taken)
    }
}

/// The holder of a lock, as its client describes it in reply to an inspection. The store keeps none of this.
///
/// Texts are at most 256 characters long, and contain no control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The mode in which it holds the lock.
    pub mode: LockMode,
    /// The [service](crate::LockClientBuilder::service), if its client names one.
    pub service: Option<String>,
    /// The version of the service.
    pub version: Option<String>,
    /// The name of the host.
    pub host: String,
    /// The process id.
    pub pid: u32,
    /// How long the lock has been held.
    pub held_for: Duration,
    /// The [label](crate::Lock::label) of the lock, which is the key template of the attribute.
    pub label: Option<String>,
    /// The annotated function, such as `orders::pay`, `orders::Desk::pay` for a method, or
    /// `<orders::Desk as orders::Pay>::pay` for a method of a trait.
    pub function: Option<String>,
    /// The [trace](crate::LockClientBuilder::trace_id) in which the lock was acquired.
    pub trace_id: Option<String>,
    /// How many calls of the holder's client wait for the lock.
    pub waiter_count: usize,
    /// How often the lease of this hold was renewed.
    pub renewals: u32,
    /// How long ago another client [revoked](crate::LockClient::revoke) the hold of the
    /// lock, if its body has not stopped since.
    pub revoked_for: Option<Duration>,
    /// The value that the leader of an [election](crate::LockClient::election) has announced, unchanged: at most
    /// 1,024 bytes, which may contain any characters.
    pub value: Option<String>,
    /// How many values the leader has announced in this term.
    pub(crate) values: u32,
}

/// Writes `` `billing` 1.4.2 on `node-3` (pid 4711), in `orders::pay`, for 12.3 s ``. A mode that is not exclusive stands
/// before the function.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_client(
            f,
            self.service.as_deref(),
            self.version.as_deref(),
            &self.host,
            self.pid,
        )?;
        f.write_str(&self.hold())
    }
}

fn write_client(
    f: &mut fmt::Formatter<'_>,
    service: Option<&str>,
    version: Option<&str>,
    host: &str,
    pid: u32,
) -> fmt::Result {
    if let Some(service) = service {
        write!(f, "`{service}` ")?;
        if let Some(version) = version {
            write!(f, "{version} ")?;
        }
        f.write_str("on ")?;
    }
    write!(f, "`{host}` (pid {pid})")
}

/// A client that waits for a lock, as it describes itself. The texts are as those of a [`Holder`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// Its owner in the [queue](LockInfo::queued_owners).
    pub owner: String,
    /// The [service](crate::LockClientBuilder::service), if the client names one.
    pub service: Option<String>,
    /// The version of the service.
    pub version: Option<String>,
    /// The name of the host.
    pub host: String,
    /// The process id.
    pub pid: u32,
}

/// Writes `` `billing` 1.4.2 on `node-3` (pid 4711) ``.
impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_client(
            f,
            self.service.as_deref(),
            self.version.as_deref(),
            &self.host,
            self.pid,
        )
    }
}

impl Holder {
    /// Returns where and how long the lock has been held: `` , in `orders::pay`, for 12.3 s ``.
    pub(crate) fn hold(&self) -> String {
        let place = self.function.as_ref().or(self.label.as_ref());
        let place = place.map_or_else(String::new, |place| format!(", in `{place}`"));
        let mode = match self.mode {
            LockMode::Exclusive => String::new(),
            mode => format!(", {mode}"),
        };
        let tenths = self.held_for.as_millis() / 100;
        format!("{mode}{place}, for {}.{} s", tenths / 10, tenths % 10)
    }
}
