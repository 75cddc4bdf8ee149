//! Reads the replies of the scripts.

use std::time::Duration;

use redis::{FromRedisValue, Value, from_redis_value};

use super::errors::unexpected;
use crate::{
    few::Few,
    lease::Time,
    owner::OwnerId,
    store::{
        Acquired, Entry, Grant, HandOff, NextLocal, QueuePlace, Released, RenewalOutcome, Renewed,
        StoreError, TokenBlock,
    },
};

/// The limit of fencing tokens. Scripts count in doubles, which are exact below it.
const TOO_LARGE_TOKEN: u64 = 1 << 53;

fn read<T: FromRedisValue>(answer: Value) -> Result<T, StoreError> {
    from_redis_value(answer).map_err(unexpected)
}

/// Returns a remaining time to live, or `None` if it does not end.
fn ttl(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// Returns whether a reply to an acquire grants its locks.
pub(super) fn is_grant(answer: &Value) -> bool {
    matches!(answer, Value::Array(answer) if matches!(answer.first(), Some(Value::Int(1 | 2))))
}

pub(super) fn read_acquired(
    answer: Value,
    claims: usize,
    sent_at: Time,
    watched: bool,
) -> Result<Acquired, StoreError> {
    let answer: Vec<i64> = read(answer)?;
    match answer.as_slice() {
        [is_wanted @ (1 | 2), tokens @ ..] if tokens.len() == claims => {
            let tokens: Result<_, _> = tokens.iter().map(|token| u64::try_from(*token)).collect();
            Ok(Acquired::Granted {
                tokens: tokens.map_err(unexpected)?,
                wanted: *is_wanted == 2,
                sent_at,
            })
        }
        [0, claim, millis, queued, fences @ ..] if fences.len() == claims => {
            let claim = usize::try_from(*claim).ok().filter(|claim| *claim < claims);
            let first = *queued == 2;
            let fences: Few<u64> = fences
                .iter()
                .map(|fence| u64::try_from(*fence).unwrap_or(0))
                .collect();
            Ok(Acquired::Held {
                claim: claim.ok_or_else(|| unexpected(format!("{answer:?} for {claims} locks")))?,
                ttl: ttl(*millis),
                queued: (*queued > 0).then_some(QueuePlace { first, watched }),
                sent_at,
                fences,
                retired: false,
            })
        }
        [-1] => Ok(Acquired::NotHeld),
        _ => Err(unexpected(format!("{answer:?} for {claims} locks"))),
    }
}

pub(super) fn read_released(
    answer: &Value,
    next: Option<NextLocal>,
    sent_at: Time,
    watched: bool,
) -> Result<Released, StoreError> {
    let hand_off = match (answer, next) {
        (Value::Int(0), _) => return Ok(Released::NotHeld),
        (Value::Int(2), _) => return Ok(Released::MovedOn),
        (Value::Int(1), _) => HandOff::Unknown,
        // If other waiters are ahead of this one, the reply to its next request says so. Until then it acts on reports as
        // the first waiter does, because those ahead of it may be dead.
        (Value::BulkString(token), Some(_)) if token.is_empty() => HandOff::Queued {
            since: sent_at,
            place: QueuePlace::first(watched),
        },
        (Value::Int(token), Some(next)) => HandOff::Granted(Grant {
            block: TokenBlock::granted(u64::try_from(*token).map_err(unexpected)?),
            since: sent_at,
            ttl: next.lease,
            wanted: false,
        }),
        _ => return Err(unexpected(format!("{answer:?} to a release"))),
    };
    Ok(Released::Done(hand_off))
}

pub(super) fn read_renewed(
    answer: Value,
    asked: usize,
    sent_at: Time,
) -> Result<Renewed, StoreError> {
    let held: Vec<u8> = match answer {
        Value::Int(1) => vec![1; asked],
        answer => read(answer)?,
    };
    if held.len() != asked {
        return Err(unexpected(format!(
            "{} answers to {asked} renewals",
            held.len()
        )));
    }
    let kept = held
        .into_iter()
        .map(|held| RenewalOutcome::by_one(held > 0, held == 2));
    Ok(Renewed {
        kept: kept.collect(),
        sent_at,
    })
}

pub(super) fn read_extended(answer: Value) -> Result<Option<TokenBlock>, StoreError> {
    let answer: Vec<u64> = read(answer)?;
    match *answer.as_slice() {
        [] => Ok(None),
        [fence, size] if size <= fence => Ok(Some(TokenBlock::extension(fence, size))),
        _ => Err(unexpected(format!("{answer:?} to an extension"))),
    }
}

/// A text of the server, as bytes: other software may have written something that is not UTF-8.
type Bytes = Vec<u8>;

pub(super) fn read_entry(answer: Value) -> Result<Option<Entry>, StoreError> {
    if matches!(&answer, Value::Array(items) if items.is_empty()) {
        return Ok(None);
    }
    let (owner, count, millis, token, queue): (Bytes, Bytes, i64, Bytes, Vec<Bytes>) =
        read(answer)?;
    let token = str::from_utf8(&token)
        .ok()
        .and_then(|token| token.parse().ok());
    let count = str::from_utf8(&count)
        .ok()
        .and_then(|count| count.parse().ok());
    Ok(Some(Entry {
        owner: String::from_utf8_lossy(&owner).into_owned(),
        count: count.unwrap_or(0),
        ttl: ttl(millis),
        // No guard has such a token either.
        token: token.filter(|token| *token < TOO_LARGE_TOKEN),
        queue: queue
            .iter()
            .filter_map(|owner| OwnerId::parse(str::from_utf8(owner).ok()?))
            .collect(),
    }))
}
