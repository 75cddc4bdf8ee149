//! What a server cannot do of what is asked of it when a client connects, or its user may not: found
//! out once, done without, and said in one line.

use std::fmt;

use redis::{Cmd, RedisResult, ServerErrorKind, Value, aio::MultiplexedConnection, cmd};

use super::{address::Address, connection::server_may_refuse};

/// What is missing.
#[allow(clippy::struct_excessive_bools, reason = "they are a set")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Missing {
    /// The protocol that mixes messages with answers; unless the URL does without.
    pub(super) resp3: bool,
    /// `CLIENT TRACKING`.
    pub(super) tracking: bool,
    /// `SUBSCRIBE`, to the connection's own channel.
    pub(super) messages: bool,
    /// `EVALSHA`.
    pub(super) scripts: bool,
}

impl Missing {
    /// What is missing here and was not there.
    pub(super) fn beyond(self, known: Self) -> Self {
        Self {
            resp3: self.resp3 && !known.resp3,
            tracking: self.tracking && !known.tracking,
            messages: self.messages && !known.messages,
            scripts: self.scripts && !known.scripts,
        }
    }

    /// What of it commands are known to be refused for.
    pub(super) fn of_commands(refused: &[String]) -> Self {
        let is_named = |command: &str| refused.iter().any(|name| name == command);
        Self {
            resp3: false,
            tracking: is_named("client|tracking"),
            messages: is_named("subscribe"),
            scripts: is_named("evalsha"),
        }
    }

    /// Says what is missing and what that means, if anything is.
    pub(super) fn tell(self, address: &Address) {
        if self.scripts {
            tracing::error!(%address, missing = %self, "the server cannot serve locks");
        } else if self != Self::default() {
            tracing::warn!(%address, missing = %self, "the server lacks abilities: locks work without them");
        }
    }
}

/// Names each, and its consequence.
impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LATE: &str = "a lock that is deleted is noticed by the next renewal, not at once";
        let all = [
            (self.scripts, "scripts (EVALSHA)", "no lock can be taken"),
            (self.resp3, "RESP3", LATE),
            (self.tracking, "CLIENT TRACKING", LATE),
            (
                self.messages,
                "SUBSCRIBE",
                "a waiter in another process asks again after a change of the lock, or within five seconds",
            ),
        ];
        let missing = all.iter().filter(|(missing, ..)| *missing);
        for (n, (_, what, consequence)) in missing.enumerate() {
            let before = if n == 0 { "" } else { "; " };
            write!(f, "{before}{what}: {consequence}")?;
        }
        Ok(())
    }
}

/// Whether the server refuses what it was asked for; fails if the connection did.
pub(super) fn refused<T>(outcome: RedisResult<T>) -> RedisResult<bool> {
    let refused = outcome.is_err();
    server_may_refuse(outcome.map(drop)).map(|()| refused)
}

/// Calls a script that is not there.
pub(super) fn absent_script() -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg("0".repeat(40)).arg(0);
    call
}

/// Whether scripts cannot be called, by what is answered to [`absent_script`].
pub(super) fn refuses_scripts(answer: RedisResult<Value>) -> RedisResult<bool> {
    match answer {
        Err(error) if error.kind() == ServerErrorKind::NoScript.into() => Ok(false),
        outcome => refused(outcome),
    }
}

pub(super) async fn try_scripts(mut commands: MultiplexedConnection) -> RedisResult<bool> {
    refuses_scripts(absent_script().query_async(&mut commands).await)
}
