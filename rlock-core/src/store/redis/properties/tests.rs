//! Checks the properties with random input.

use proptest::{collection::vec, prelude::*};
use rlock_proto::{mode::LockMode, owner::OwnerId, store::TOO_LARGE_FENCE};

use super::*;

/// Generates strings of parts with a meaning in keys and names, and of other text.
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

/// Generates replies of servers, mostly well-formed.
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

#[test]
fn keys_that_look_like_names_share_nothing_on_the_server() {
    let keys = [
        "a",
        "{a}",
        "{a}:fence",
        "a:fence",
        "{a}:queue",
        "x{a}",
        "{a}x",
    ];
    for one in keys {
        for other in keys {
            names(one, other);
        }
    }
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
        let (keyspace, owner) = (names_of_locks(), OwnerId::new(CLIENT, sequence >> 1, LockMode::Exclusive));
        let ttl = Duration::from_millis(ms);
        let event = match token {
            Some(token) => Notification::Granted { key, owner, fence: token % TOO_LARGE_FENCE, ttl: ttl.min(GRACE), wanted: ms % 2 == 0 },
            None if ms % 2 == 0 => Notification::Wanted { key, owner },
            None => Notification::Retry { key, owner, after: ttl },
        };
        let message = written(&keyspace, &event);
        prop_assert_eq!(keyspace.read_message(CLIENT, message.as_bytes()), Some(event));
        let another = Uuid::from_u128(8);
        prop_assert_eq!(keyspace.read_message(another, message.as_bytes()), None);
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
