//! The texts of a [`LockError`]: `{}` for the callers of a service, and `{:#}` for logs, with the holder and the reason of
//! the store.

use std::{error::Error, fmt, time::Duration};

use rlock_proto::{escape_control::escape_control, lost::LostCause};

use super::LockError;
use crate::wording::{names, shown};

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_full = f.alternate();
        match self {
            Self::Taken {
                key,
                waited,
                remaining,
                details,
                ..
            } => {
                let (key, waited) = (escape_control(key), shown(*waited));
                write!(f, "lock `{key}` was still taken after waiting {waited}")?;
                if is_full {
                    write!(f, "{}{details}", rest(*remaining))?;
                }
                f.write_str("; try again later, or allow more with `wait`")
            }
            Self::Lost { key, cause } => {
                let key = escape_control(key);
                write!(f, "lock `{key}` was lost while it was held: {cause}")?;
                match cause {
                    LostCause::Released => Ok(()),
                    _ => f.write_str("; check what the body has done before you repeat it"),
                }
            }
            Self::Unavailable {
                action,
                waited,
                source,
            } => {
                let (action, waited) = (escape_control(action), shown(*waited));
                write!(
                    f,
                    "could not {action} after {waited}, the store is unavailable"
                )?;
                if is_full {
                    write_reasons(f, &**source)
                } else {
                    f.write_str("; try again later")
                }
            }
            Self::Refused { action, source } => {
                write!(f, "could not {}, the store refuses", escape_control(action))?;
                if is_full {
                    write_reasons(f, &**source)
                } else {
                    f.write_str("; it would refuse again, until its set-up is changed")
                }
            }
            Self::InvalidKey { key, reason } => {
                write!(f, "invalid lock key `{}`: {reason}", escape_control(key))
            }
            Self::InvalidOption {
                option,
                value,
                reason,
            } => write!(f, "invalid value {value} for `{option}`: {reason}"),
            Self::NoClient { key } => write!(
                f,
                "no lock client for `{}`: call `client.install()` at start-up, run inside `client.scope(…)`, which a \
                 spawned task leaves unless you spawn it with `in_current_scope()`, or name one with `client = …`",
                escape_control(key)
            ),
            Self::BlockingInAsync { action } => write!(
                f,
                "could not {}: the blocking call was made inside an async task; use the async call, or \
                 wrap the synchronous code in `tokio::task::spawn_blocking`",
                escape_control(action)
            ),
            Self::Upgrade { key, held, wanted } => write!(
                f,
                "this call already holds lock `{}` as {held}, and asked for it as {wanted} inside that hold: acquire \
                 the exclusive lock from the start, or release that hold first",
                escape_control(key)
            ),
            Self::Draining { action } => write!(
                f,
                "could not {}: its lock client is draining and takes no new calls; try another instance",
                escape_control(action)
            ),
            Self::Closed { action, waited } => write_closed(f, action, *waited),
            Self::StillHeld { keys, waited } => write!(
                f,
                "could not release lock {} within {} of the shutdown, because a body has not stopped or its guard was \
                 not dropped: make bodies await, or check `is_valid()`; each lock ends with its lease",
                names(keys.iter().map(String::as_str)),
                shown(*waited)
            ),
        }
    }
}

fn write_closed(f: &mut fmt::Formatter<'_>, action: &str, waited: Option<Duration>) -> fmt::Result {
    let action = escape_control(action);
    write!(f, "could not {action}: its lock client was shut down")?;
    match waited {
        None => f.write_str("; connect a new one"),
        Some(waited) => {
            let waited = shown(waited);
            write!(
                f,
                " after this call had waited {waited}; try another instance"
            )
        }
    }
}

/// Writes an error, then each of its sources that the text does not already contain.
fn write_reasons(f: &mut fmt::Formatter<'_>, error: &(dyn Error + 'static)) -> fmt::Result {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        source = error.source();
    }
    write!(f, ": {text}")
}

fn rest(remaining: Option<Duration>) -> String {
    remaining.map_or_else(String::new, |left| {
        format!(" (the holder's lease had {} left)", shown(left))
    })
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the handshake with 10.0.0.7:6379 failed")]
    struct Outer(#[source] io::Error);

    fn refused(source: impl Error + Send + Sync + 'static) -> LockError {
        LockError::Refused {
            action: "acquire lock `k`".to_owned(),
            source: Arc::new(source),
        }
    }

    fn still_held(keys: &[&str]) -> LockError {
        LockError::StillHeld {
            keys: keys.iter().map(ToString::to_string).collect(),
            waited: Duration::from_millis(20),
        }
    }

    #[test]
    fn the_text_for_a_caller_has_no_reason_of_the_store_and_the_full_one_has_all() {
        let reset = || Outer(io::Error::other("connection reset"));
        let unavailable = LockError::Unavailable {
            action: "acquire lock `k`".to_owned(),
            waited: Duration::from_millis(20),
            source: Arc::new(reset()),
        };
        assert_eq!(
            unavailable.to_string(),
            "could not acquire lock `k` after 20ms, the store is unavailable; try again later"
        );
        let reasons = "the handshake with 10.0.0.7:6379 failed: connection reset";
        assert_eq!(
            format!("{unavailable:#}"),
            format!("could not acquire lock `k` after 20ms, the store is unavailable: {reasons}")
        );
        let refused = refused(reset());
        assert_eq!(
            refused.to_string(),
            "could not acquire lock `k`, the store refuses; it would refuse again, until its set-up is changed"
        );
        assert_eq!(
            format!("{refused:#}"),
            format!("could not acquire lock `k`, the store refuses: {reasons}")
        );
    }

    #[test]
    fn a_shutdown_tells_a_call_that_waited_from_a_later_one() {
        let closed = |waited| {
            let action = "acquire lock `k`".to_owned();
            LockError::Closed { action, waited }.to_string()
        };
        assert_eq!(
            closed(None),
            "could not acquire lock `k`: its lock client was shut down; connect a new one"
        );
        assert_eq!(
            closed(Some(Duration::from_millis(20))),
            "could not acquire lock `k`: its lock client was shut down after this call had waited 20ms; try another \
             instance"
        );
    }

    #[test]
    fn locks_still_held_are_named_but_not_a_long_list_of_them() {
        let text = still_held(&["a", "b\n"]).to_string();
        assert!(
            text.contains("release lock `a`, `b\\n` within 20ms of the"),
            "{text}"
        );
        let many = still_held(&["a", "b", "c", "d", "e"]);
        assert!(many.to_string().contains("`c` and 2 more within"), "{many}");
        assert_eq!(many.key(), Some("a"));
    }

    #[test]
    fn a_source_that_the_text_names_is_not_repeated() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Same(#[source] io::Error);

        let error = format!("{:#}", refused(Same(io::Error::other("no permission"))));
        assert!(error.ends_with("refuses: no permission"), "{error}");
    }

    #[test]
    fn debug_shows_the_variant_and_its_fields() {
        let (key, cause) = ("k".to_owned(), LostCause::Expired);
        assert_eq!(
            format!("{:?}", LockError::Lost { key, cause }),
            "Lost { key: \"k\", cause: Expired }"
        );
    }
}
