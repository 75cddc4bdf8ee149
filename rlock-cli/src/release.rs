//! `rlock release`: asks the holder to release a lock, revokes the lock or takes it, after a question on the terminal.

use clap::Args;
use rlock_core::{LockClient, Token, inspect::LockInfo};
use serde_json::json;

use crate::{
    connect::{StoreOptions, connect},
    describe,
    duration::{self, Limit},
    exit::{Failure, Status},
    manual, output, question,
    text::{escaped, time},
    wait,
};

/// The options of `rlock release`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::RELEASE))]
pub(crate) struct ReleaseOptions {
    /// The lock to release
    #[arg(value_name = "KEY")]
    key: String,
    #[command(flatten)]
    way: Way,
    /// With `--ask` or `--revoke`: returns when the holder has released the lock, or fails after this time
    #[arg(short, long, value_name = "DURATION", conflicts_with_all = ["token", "force"], value_parser = duration::wait)]
    wait: Option<Limit>,
    /// Does not ask on the terminal
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Way {
    /// Asks the holder to release the lock when it is ready; nothing is lost
    #[arg(long)]
    ask: bool,
    /// Revokes the lock: its holder stops its body, then releases it
    #[arg(long)]
    revoke: bool,
    /// Takes the lock if the current hold has this token; a later hold is not touched
    #[arg(long, value_name = "N")]
    token: Option<Token>,
    /// Takes the lock from its holder, even if it does not reply; its body may run on while the next holder works
    #[arg(long)]
    force: bool,
}

pub(crate) async fn release(
    options: &ReleaseOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    if !options.yes {
        let yes = if options.way.ask {
            "sends the request"
        } else {
            "releases the lock"
        };
        question::can_be_asked(yes)?;
    }
    let client = connect(store).await?;
    let Some(info) = client.inspect(&options.key).await? else {
        return refused(options, json, Status::NOT_HELD, "it is free");
    };
    let plan = plan(options, &info);
    if options.yes {
        tracing::warn!("{plan}");
    } else if let Some(reason) = question::refusal(&client, &options.key, &info, &plan).await? {
        return refused(options, json, Status::NOT_HELD, reason);
    }
    match released(options, &client, &info).await? {
        Ok(mut outcome) => {
            if let Some(limit) = options.wait {
                let before = describe::owners(&info);
                // The next waiter may have the lock by then.
                let is_over = |now: Option<LockInfo>| {
                    now.is_none_or(|now| {
                        let now_held = describe::owners(&now);
                        !now_held.iter().any(|owner| before.contains(owner))
                            && !describe::is_kept(&now)
                    })
                };
                let has_several = info.holder_count > 1;
                if !wait::until(&client, &options.key, limit, is_over).await? {
                    let who = if has_several {
                        "not all of its holders have"
                    } else {
                        "its holder has not"
                    };
                    let reason = if options.way.ask {
                        format!(
                            "its release was requested, but {who} released it in time; use `--revoke`"
                        )
                    } else {
                        format!("it was revoked, but {who} stopped in time; take it with `--force`")
                    };
                    return refused(options, json, Status::TAKEN, &reason);
                }
                outcome = if has_several {
                    "its holders have released it"
                } else {
                    "its holder has released it"
                };
            }
            if json {
                // Without `--wait`, the holder may not have stopped yet.
                let Way { ask, revoke, .. } = options.way;
                let is_released = !(ask || revoke) || options.wait.is_some();
                let key = &options.key;
                output::object(
                    &json!({ "key": key, "released": is_released, "asked": ask, "revoked": revoke }),
                )?;
            } else {
                output::text(format!("lock `{}`: {outcome}\n", escaped(&options.key)).as_bytes())?;
            }
            Ok(Status::SUCCESS)
        }
        Err(reason) => refused(options, json, Status::NOT_HELD, &reason),
    }
}

/// Releases the lock. Returns what has become of it, or why it was not released.
async fn released(
    options: &ReleaseOptions,
    client: &LockClient,
    info: &LockInfo,
) -> Result<Result<&'static str, String>, Failure> {
    let (key, has_several) = (&options.key, info.holder_count > 1);
    Ok(if options.way.ask {
        match client.request_release(key).await? {
            true if info.retained => Ok("its holder releases it"),
            true if has_several => {
                Ok("its holders were asked to release it, and do so when they are ready")
            }
            true => Ok("its holder was asked to release it, and does so when it is ready"),
            false => Err(unanswered(options, info)),
        }
    } else if options.way.revoke {
        match client.revoke(key).await? {
            true if has_several => Ok("its holders stop their bodies, and then release it"),
            true if info.retained => Ok("its holder releases it"),
            true => Ok("its holder stops its body, and then releases it"),
            false => Err(unanswered(options, info)),
        }
    } else if let Some(token) = options.way.token {
        match (client.release_if(key, token).await?, has_several) {
            (true, true) => Ok("taken from the holder with this token"),
            (true, false) => Ok("taken from its holder"),
            (false, _) => Err(describe::other_token(token, info)),
        }
    } else if client.force_release(key).await? {
        Ok(if has_several {
            "taken from all its holders"
        } else {
            "taken from its holder"
        })
    } else {
        Err("its holder has just released it".to_owned())
    })
}

fn unanswered(options: &ReleaseOptions, info: &LockInfo) -> String {
    if describe::is_kept(info) {
        return "min_hold keeps it taken, and no call holds it; `--force` ends that".to_owned();
    }
    if !info.is_held() {
        return "other software wrote it; delete its key on the server".to_owned();
    }
    if info.holder_count > 1 {
        let done = if options.way.ask {
            "only those of its holders that reply were asked to release it"
        } else {
            "it was revoked from those of its holders that reply"
        };
        return format!("{done}; take it from all with `--force`");
    }
    if info.holder.is_some() {
        return "it has changed hands, or its holder no longer replies; try again".to_owned();
    }
    let free = info.ttl.map_or_else(String::new, |left| {
        format!(", or wait: it is free in {} unless renewed", time(left))
    });
    format!("its holder does not reply; take it with `--force`{free}")
}

/// Ends with this status, for a lock that was not released.
fn refused(
    options: &ReleaseOptions,
    json: bool,
    status: Status,
    reason: &str,
) -> Result<Status, Failure> {
    let reason = format!("lock `{}` is not released: {reason}", options.key);
    if json {
        output::object(&json!({ "key": options.key, "released": false, "reason": reason }))?;
    }
    Err(Failure::new(status, reason))
}

/// Describes what is about to happen, and to which holder.
fn plan(options: &ReleaseOptions, info: &LockInfo) -> String {
    let key = escaped(&options.key);
    let has_several = info.holder_count > 1;
    let action = match options.way {
        Way { ask: true, .. } if has_several => "asking all of them to release it".to_owned(),
        Way { ask: true, .. } => "asking the holder to release it".to_owned(),
        Way { revoke: true, .. } if has_several => "revoking it from all of them".to_owned(),
        Way { revoke: true, .. } => "revoking it".to_owned(),
        Way {
            token: Some(token), ..
        } if has_several => format!("taking it from the one with the token {token}"),
        Way {
            token: Some(token), ..
        } => format!("taking it if its token is {token}"),
        _ if has_several => "taking it from all of them".to_owned(),
        _ => "taking it".to_owned(),
    };
    let effect = match options.way {
        _ if info.retained || !info.is_held() => "",
        Way { ask: true, .. } if has_several => "; they do so when they are ready",
        Way { ask: true, .. } => "; it does so when it is ready",
        Way { revoke: true, .. } if has_several => "; their bodies are stopped at the next await",
        Way { revoke: true, .. } => "; its body is stopped at its next await",
        Way { force: true, .. } if has_several => {
            "; their bodies may run on while the next holder works"
        }
        _ => "; its body may run on while the next holder works",
    };
    format!(
        "lock `{key}` is {}; {action}{effect}",
        describe::taken(info)
    )
}
