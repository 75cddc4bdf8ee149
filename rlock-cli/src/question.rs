//! Asks on the terminal before a command sends a request to a holder or takes its lock.

use std::io::{self, IsTerminal as _, Write as _};

use rlock_core::{LockClient, inspect::LockInfo};

use crate::{
    describe,
    exit::{Failure, Status},
};

/// Fails unless there is a terminal to ask on. `yes` says what the command does with `--yes`.
pub(crate) fn can_be_asked(yes: &str) -> Result<(), Failure> {
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        return Ok(());
    }
    Err(Failure::new(
        Status::USAGE,
        format!("there is no terminal to ask on; `--yes` {yes} without a question"),
    ))
}

/// Shows the plan for a lock on the terminal. Returns the reason if the user does not agree, or if the lock has other holders by then.
pub(crate) async fn refusal(
    client: &LockClient,
    key: &str,
    info: &LockInfo,
    plan: &str,
) -> Result<Option<&'static str>, Failure> {
    if !confirmed(plan)? {
        return Ok(Some("the question was not confirmed"));
    }
    let known = describe::owners(info);
    let is_known = |now: LockInfo| {
        let now = describe::owners(&now);
        now.iter().all(|owner| known.contains(owner))
    };
    let now = client.inspect(key).await?;
    Ok((!now.is_some_and(is_known))
        .then_some("the lock was released or changed hands in the meantime"))
}

/// Shows the plan on the terminal, and returns whether the user agrees.
fn confirmed(plan: &str) -> Result<bool, Failure> {
    let asked = || {
        write!(io::stderr(), "{plan}\nContinue? [y/N] ")?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(answer)
    };
    let answer = asked().map_err(|error: io::Error| Failure::own("ask on the terminal", &error))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
