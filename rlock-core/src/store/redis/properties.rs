//! What holds for everything that comes from outside: answers and messages of the server, keys, URLs.
//! Tried with random input by the tests below, and with found input by the targets in `fuzz/`.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::{PushInfo, Value};
use uuid::Uuid;

use super::{
    address::Address,
    calls::Calls,
    connection::receive,
    errors::classify,
    link::{Link, Part},
    messages,
    names::Names,
    scripts::{read_acquired, read_entry, read_released, read_renewed},
};
use crate::{
    key::Key,
    lease::Time,
    owner::OwnerId,
    store::{Acquired, GRACE, News, Next, Onward, Released},
};

const CLIENT: Uuid = Uuid::from_u128(7);

fn names_of_locks() -> Names {
    Names::new("lock:".to_owned())
}

/// Writes news as `grant.lua` does.
fn written(names: &Names, news: &News) -> String {
    match news {
        News::Granted {
            key,
            owner,
            token,
            ttl,
        } => format!("{owner} {token} {} {}", ttl.as_millis(), names.lock(key)),
        News::AskAgain { key, owner, after } => {
            format!("{owner}  {} {}", after.as_millis(), names.lock(key))
        }
        other => panic!("{other:?} is no message"),
    }
}

fn check_news(names: &Names, news: &News) {
    match news {
        News::Granted { owner, .. } | News::AskAgain { owner, .. } => {
            if let News::Granted { ttl, .. } = news {
                assert!(*ttl <= GRACE);
            }
            assert_eq!(owner.client(), CLIENT, "the message is for another client");
            let again = messages::read(names, CLIENT, written(names, news).as_bytes());
            assert_eq!(again.as_ref(), Some(news), "written again it says the same");
        }
        News::Changed(key) => {
            let name = names.lock(key).to_string();
            assert_eq!(names.key(name.as_bytes()).as_ref(), Some(key));
        }
        News::AllChanged | News::SomeChanged(_) | News::Disconnected => {}
    }
}

/// A message on the client's channel is for one of its owners and says something definite, or is
/// ignored.
pub(crate) fn message(message: &[u8]) {
    let names = names_of_locks();
    let owner = format!("{CLIENT}:3 ");
    for beginning in ["", &owner, &format!("{owner}4711 1000 ")] {
        let message = [beginning.as_bytes(), message].concat();
        if let Some(news) = messages::read(&names, CLIENT, &message) {
            check_news(&names, &news);
        }
    }
}

/// What a server sends is an answer that fits the question, or an error.
pub(crate) fn reply(reply: &[u8]) {
    let Ok(value) = redis::parse_redis_value(reply) else {
        return;
    };
    if let Value::Push { kind, data } = value {
        push(PushInfo { kind, data });
        return;
    }
    let value = match value.extract_error() {
        Ok(value) => value,
        Err(error) => {
            let _ = classify(error).to_string();
            return;
        }
    };
    let sent_at = Time::from_nanos(1);
    for claims in 1..4 {
        match read_acquired(value.clone(), claims, sent_at) {
            Ok(Acquired::Granted { tokens, .. }) => assert_eq!(tokens.len(), claims),
            Ok(Acquired::Held { claim, fences, .. }) => {
                assert!(claim < claims);
                assert_eq!(fences.len(), claims);
            }
            Ok(Acquired::NotHeld) | Err(_) => {}
        }
        if let Ok(held) = read_renewed(value.clone(), claims) {
            assert_eq!(held.len(), claims);
        }
    }
    let next = Next {
        owner: OwnerId::new(CLIENT, 3),
        lease: Duration::from_secs(30),
        first: false,
    };
    let alone = read_released(value.clone(), None, sent_at);
    if let Ok(Released::Done(onward)) = alone {
        assert_eq!(onward, Onward::Unknown, "nobody was named");
    }
    if let Ok(Released::Done(Onward::Granted(grant))) =
        read_released(value.clone(), Some(next), sent_at)
    {
        assert_eq!((grant.since, grant.ttl), (sent_at, next.lease));
    }
    let _ = read_entry(value);
}

fn push(push: PushInfo) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&heard);
    let link = Link::new(
        Address::parse("redis://127.0.0.1/", true).expect("valid"),
        Arc::new(Calls::new("lock:".to_owned())),
        Part::Home { client: CLIENT },
        Arc::new(move |news| listener.lock().expect("no panic").push(news)),
        Duration::from_secs(1),
    );
    receive(&Arc::downgrade(&link), 1, push);
    for news in heard.lock().expect("no panic").iter() {
        check_news(&names_of_locks(), news);
    }
}

/// Different keys have nothing in common on the server, and all that belongs to a key has its hash tag.
pub(crate) fn names(one: &str, other: &str) {
    let names = names_of_locks();
    let all = |key: &Key| {
        let lock = names.lock(key).to_string();
        assert_eq!(names.key(lock.as_bytes()).as_ref(), Some(key));
        let all = [
            format!("{lock}:fence"),
            format!("{lock}:queue"),
            lock.clone(),
        ];
        let tag = hash_tag(key.as_str()).unwrap_or(key.as_str());
        for name in &all {
            assert_eq!(hash_tag(name), Some(tag), "{name}");
            assert!(*name == lock || names.key(name.as_bytes()).is_none());
        }
        all
    };
    let (Ok(one), Ok(other)) = (Key::parse(one), Key::parse(other)) else {
        return;
    };
    let (of_one, of_other) = (all(&one), all(&other));
    if one != other {
        assert!(of_one.iter().all(|name| !of_other.contains(name)));
    }
}

/// The part of a name that chooses its slot, as Redis Cluster finds it.
fn hash_tag(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// A URL is an address or an error.
pub(crate) fn url(url: &str) {
    match Address::parse(url, true) {
        Ok(address) => assert!(!address.to_string().contains(char::is_control)),
        Err(error) => assert!(error.to_string().contains("`url`")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Strings of what means something in keys and names, and of anything else.
    fn texts() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => prop::sample::select(vec![
                "{", "}", ":", "%", " ", "lock:", ":fence", ":queue", "client:", "\r\n", "\0", "a", "é",
            ])
            .prop_map(str::to_owned),
            1 => any::<String>(),
        ];
        vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    /// Answers of servers, mostly well-formed.
    fn replies() -> impl Strategy<Value = Vec<u8>> {
        let number = prop_oneof![
            4 => -2i64..5,
            1 => any::<i64>(),
        ]
        .prop_map(|n| format!(":{n}\r\n"));
        let numbers = vec(number.clone(), 0..9)
            .prop_map(|items| format!("*{}\r\n{}", items.len(), items.concat()));
        let simple = prop_oneof![
            number,
            texts().prop_map(|text| format!("${}\r\n{text}\r\n", text.len())),
            any::<u64>()
                .prop_map(|n| n.to_string())
                .prop_map(|n| format!("${}\r\n{n}\r\n", n.len())),
            prop::sample::select(vec![
                "_\r\n",
                "$-1\r\n",
                "*-1\r\n",
                "#t\r\n",
                "+OK\r\n",
                ",1.5\r\n",
                "(99999999999999999999\r\n",
                "-ERR wrong\r\n",
                "-NOPERM no\r\n",
                "!8\r\nERR line\r\n",
                "=5\r\ntxt:x\r\n",
                "$10\r\ninvalidate\r\n",
                "$7\r\nmessage\r\n",
                "*0\r\n",
            ])
            .prop_map(str::to_owned),
        ];
        let nested = simple.prop_recursive(3, 12, 6, |inner| {
            (
                prop::sample::select(vec!['*', '>', '~', '%', '|']),
                vec(inner, 0..7),
            )
                .prop_map(|(kind, items)| {
                    let count = if matches!(kind, '%' | '|') {
                        items.len() / 2
                    } else {
                        items.len()
                    };
                    format!("{kind}{count}\r\n{}", items.concat())
                })
        });
        prop_oneof![
            4 => nested.prop_map(String::into_bytes),
            4 => numbers.prop_map(String::into_bytes),
            1 => vec(any::<u8>(), 0..40),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn every_message_is_read_or_ignored(
            bytes in prop_oneof![texts().prop_map(String::into_bytes), vec(any::<u8>(), 0..80)]
        ) {
            message(&bytes);
        }

        #[test]
        fn every_message_that_the_scripts_write_is_read_as_it_was_meant(
            key in texts(), sequence: u64, token in proptest::option::of(any::<u64>()), ms: u64
        ) {
            let Ok(key) = Key::parse(&key) else { return Ok(()) };
            let (names, owner) = (names_of_locks(), OwnerId::new(CLIENT, sequence));
            let ttl = Duration::from_millis(ms);
            let news = match token {
                Some(token) => News::Granted { key, owner, token, ttl: ttl.min(GRACE) },
                None => News::AskAgain { key, owner, after: ttl },
            };
            let message = written(&names, &news);
            prop_assert_eq!(messages::read(&names, CLIENT, message.as_bytes()), Some(news));
            let another = Uuid::from_u128(8);
            prop_assert_eq!(messages::read(&names, another, message.as_bytes()), None);
        }

        #[test]
        fn every_reply_is_an_answer_or_an_error(bytes in replies()) {
            reply(&bytes);
        }

        #[test]
        fn different_keys_share_nothing_on_the_server(one in texts(), other in texts()) {
            names(&one, &other);
        }

        #[test]
        fn every_url_is_an_address_or_an_error(
            rest in texts(), scheme in prop::sample::select(vec!["redis://", "rediss://", "unix://", "redis:", ""])
        ) {
            url(&format!("{scheme}{rest}"));
        }
    }
}
