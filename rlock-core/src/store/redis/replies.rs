//! Reads the replies of the scripts.

use std::{str::FromStr, time::Duration};

use redis::{FromRedisValue, Value, from_redis_value};
use rlock_proto::{
    few::{Few, one},
    lease::Time,
    owner::OwnerId,
    store::{
        Acquired, Applied, Asks, QueuePlace, RenewalOutcome, Renewed, StoredLock, TOO_LARGE_FENCE,
        TakenBy,
    },
};

use super::errors::unexpected;
use crate::store::StoreError;

fn read<T: FromRedisValue>(answer: Value) -> Result<T, StoreError> {
    from_redis_value(answer).map_err(unexpected)
}

/// Returns a remaining time to live, or `None` if it does not end.
fn ttl(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

pub(super) fn read_acquired(
    mut answer: Value,
    claims: usize,
    sent_at: Time,
    watched: bool,
) -> Result<Acquired, StoreError> {
    let fence = |fence: &i64| {
        u64::try_from(*fence)
            .ok()
            .filter(|fence| *fence < TOO_LARGE_FENCE)
    };
    if let (Value::BulkString(_), 1) = (&answer, claims) {
        let number: i64 = read(answer)?;
        return Ok(Acquired::Granted {
            fences: one(fence(&number).ok_or_else(|| unexpected(format!("the fence {number}")))?),
            wanted: false,
            sent_at,
        });
    }
    let by = take_holder(&mut answer);
    let answer: Vec<i64> = read(answer)?;
    match answer.as_slice() {
        [is_wanted @ (1 | 2), fences @ ..] if fences.len() == claims => {
            let fences: Option<Few<u64>> = fences.iter().map(fence).collect();
            Ok(Acquired::Granted {
                fences: fences.ok_or_else(|| unexpected(format!("{answer:?}")))?,
                wanted: *is_wanted == 2,
                sent_at,
            })
        }
        [0, claim, millis, queued, fences @ ..] if fences.len() == claims => {
            let claim = usize::try_from(*claim).ok().filter(|claim| *claim < claims);
            let (first, probes) = (*queued == 2, *queued == 3);
            let past_fence = |fence: &i64| u64::try_from(*fence).ok().filter(|fence| *fence > 0);
            Ok(Acquired::Taken {
                claim: claim.ok_or_else(|| unexpected(format!("{answer:?} for {claims} locks")))?,
                ttl: ttl(*millis),
                queued: (*queued > 0).then_some(QueuePlace {
                    first,
                    watched,
                    asks: Asks::probing(probes),
                }),
                sent_at,
                past_fences: fences.iter().map(past_fence).collect(),
                retired: false,
                by,
            })
        }
        [-1] => Ok(Acquired::Outdated),
        _ => Err(unexpected(format!("{answer:?} for {claims} locks"))),
    }
}

/// Removes and returns the last element of a reply if it names a claim and the number of permits of another holder.
pub(super) fn take_number(answer: &mut Value) -> Option<(usize, u32)> {
    let Value::Array(items) = answer else {
        return None;
    };
    let Some(Value::BulkString(last)) = items.last() else {
        return None;
    };
    let (claim, number) = str::from_utf8(last).ok()?.split_once('/')?;
    let differs = (claim.parse().ok()?, number.parse().ok()?);
    items.pop();
    Some(differs)
}

/// Removes and returns the holder at the end of a refusal by a member of a quorum.
fn take_holder(answer: &mut Value) -> TakenBy {
    let Value::Array(items) = answer else {
        return TakenBy::Unnamed;
    };
    let last = items.pop_if(|item| matches!(item, Value::BulkString(_)));
    let holder = last.and_then(|holder| OwnerId::parse(&read::<String>(holder).ok()?));
    let holder = holder.filter(|holder| !holder.is_kept());
    holder.map_or(TakenBy::Unnamed, TakenBy::Owner)
}

pub(super) fn read_applied(answer: &Value) -> Result<Applied, StoreError> {
    match answer {
        Value::Int(0) => Ok(Applied::NotHeld),
        Value::Int(1) => Ok(Applied::Done),
        _ => Err(unexpected(format!("{answer:?} to a change"))),
    }
}

pub(super) fn read_renewed(
    answer: Value,
    asked: usize,
    sent_at: Time,
) -> Result<Renewed, StoreError> {
    let held: Vec<i64> = match answer {
        Value::Int(1) => vec![1; asked],
        answer => read(answer)?,
    };
    if held.len() != asked {
        return Err(unexpected(format!(
            "{} answers to {asked} renewals",
            held.len()
        )));
    }
    let kept = held.into_iter().map(|held| match held.unsigned_abs() {
        0 => RenewalOutcome::Lost,
        fence => RenewalOutcome::Held {
            wanted: held < 0,
            fence: if (2..TOO_LARGE_FENCE).contains(&fence) {
                fence
            } else {
                0
            },
        },
    });
    Ok(Renewed {
        kept: kept.collect(),
        sent_at,
    })
}

/// Returns how many locks were restored.
pub(super) fn read_restored(answer: Value) -> Result<usize, StoreError> {
    let restored: Vec<bool> = read(answer)?;
    Ok(restored.into_iter().filter(|is_new| *is_new).count())
}

/// A text of the server, as bytes: other software may have written something that is not UTF-8.
type Bytes = Vec<u8>;
/// The reply of `inspect.lua`.
type Inspected = (Bytes, Bytes, i64, Bytes, Vec<Bytes>, usize, Vec<Bytes>, u64);

fn number<T: FromStr>(text: &Bytes) -> Option<T> {
    str::from_utf8(text).ok()?.parse().ok()
}

pub(super) fn read_entry(answer: Value) -> Result<Option<StoredLock>, StoreError> {
    if matches!(&answer, Value::Array(items) if items.is_empty()) {
        return Ok(None);
    }
    let (owner, count, millis, fence, queue, holders, others, permits_taken): Inspected =
        read(answer)?;
    let owners = |texts: &[Bytes]| {
        let owner = |text: &Bytes| OwnerId::parse(str::from_utf8(text).ok()?);
        texts.iter().filter_map(owner).collect()
    };
    let fence: Option<u64> = number(&fence);
    Ok(Some(StoredLock {
        owner: String::from_utf8_lossy(&owner).into_owned(),
        count: number(&count).unwrap_or(0),
        ttl: ttl(millis),
        fence: fence.filter(|fence| *fence < TOO_LARGE_FENCE),
        other_fences: Vec::new(),
        queue: owners(&queue),
        holders,
        permits_taken,
        others: owners(&others),
    }))
}
