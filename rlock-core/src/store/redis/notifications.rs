//! What waiters are told: one channel for each connection of a client, so that a change of holder wakes
//! those whom it concerns and nobody else.

use std::time::Duration;

use uuid::Uuid;

use super::keyspace::Keyspace;
use crate::{
    owner::OwnerId,
    store::{GRACE, News, TokenBlock},
};

/// Reads a message as `library.lua` writes it: `<owner> <what> <ms> <lock>`. What there is to say:
/// `<first token>/<size of its block>/<1 if others wait>` of a grant, `wanted`, or nothing if the owner is to ask
/// again.
pub(super) fn read(keyspace: &Keyspace, client: Uuid, message: &[u8]) -> Option<News> {
    let mut words = std::str::from_utf8(message).ok()?.splitn(4, ' ');
    let owner = OwnerId::parse(words.next()?)?;
    if owner.client() != client {
        return None;
    }
    let what = words.next()?;
    let ttl = Duration::from_millis(words.next()?.parse().ok()?);
    let key = keyspace.key(words.next()?.as_bytes())?;
    if what == "wanted" {
        return Some(News::Wanted { key, owner });
    }
    if what.is_empty() {
        return Some(News::AskAgain {
            key,
            owner,
            after: ttl,
        });
    }
    let mut grant = what.split('/').map(|number| number.parse().ok());
    let (first, size, wanted): (u64, u64, u64) = (grant.next()??, grant.next()??, grant.next()??);
    if size == 0 || first.checked_add(size).is_none() || grant.next().is_some() {
        return None;
    }
    Some(News::Granted {
        key,
        owner,
        block: TokenBlock { first, size },
        wanted: wanted == 1,
        // Nothing longer is given by a message; so one that is forged is found out as soon.
        ttl: ttl.min(GRACE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn messages_are_read_as_they_are_written() {
        let client = Uuid::from_u128(7);
        let keyspace = Keyspace::new("lock:".to_owned());
        let owner = OwnerId::new(client, 3);
        let key = Key::parse("order 42").expect("valid");
        let lock = keyspace.lock(&key);
        let granted = format!("{owner} 1795262039290667/16/1 1000 {lock}");
        assert_eq!(
            read(&keyspace, client, granted.as_bytes()),
            Some(News::Granted {
                key: key.clone(),
                owner,
                block: TokenBlock::granted(1_795_262_039_290_667),
                wanted: true,
                ttl: Duration::from_secs(1),
            })
        );
        let wanted = format!("{owner} wanted 0 {lock}");
        assert_eq!(
            read(&keyspace, client, wanted.as_bytes()),
            Some(News::Wanted {
                key: key.clone(),
                owner
            })
        );
        let ask = format!("{owner}  250 {lock}");
        assert_eq!(
            read(&keyspace, client, ask.as_bytes()),
            Some(News::AskAgain {
                key,
                owner,
                after: Duration::from_millis(250),
            })
        );
    }

    #[test]
    fn messages_that_make_no_sense_are_no_news() {
        let client = Uuid::from_u128(7);
        let keyspace = Keyspace::new("lock:".to_owned());
        let owner = OwnerId::new(client, 3);
        let other = OwnerId::new(Uuid::from_u128(8), 3);
        for message in [
            String::new(),
            "granted".to_owned(),
            format!("{owner} 1 1000"),
            format!("{owner} 1 soon lock:{{a}}"),
            format!("{owner} x 1000 lock:{{a}}"),
            format!("{owner} 1 1000 lock:{{a}}"),
            format!("{owner} 1/0/0 1000 lock:{{a}}"),
            format!("{owner} 18446744073709551615/16/0 1000 lock:{{a}}"),
            format!("{owner} 16/16/0/0 1000 lock:{{a}}"),
            format!("{owner} 16/16/0 1000 elsewhere:{{a}}"),
            format!("{other} 16/16/0 1000 lock:{{a}}"),
            format!("{other} wanted 0 lock:{{a}}"),
        ] {
            assert_eq!(
                read(&keyspace, client, message.as_bytes()),
                None,
                "{message}"
            );
        }
        assert_eq!(read(&keyspace, client, b"\xff 1 1000 lock:{a}"), None);
    }
}
