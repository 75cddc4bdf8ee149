//! Tests that messages are read as they were written, that their text never changes, and that other text does no harm.

use proptest::prelude::*;

use super::*;
use rlock_proto::{
    escape_control::{MOST_SHOWN, shown},
    key::MAX_KEY_BYTES,
    mode::LockMode,
};

fn key() -> impl Strategy<Value = Key> {
    "[^{}]{1,40}|[a-z]{1,3}\\{[^{}]{1,9}\\}".prop_filter_map("a key", |text| Key::parse(&text).ok())
}

fn owner() -> impl Strategy<Value = OwnerId> {
    (any::<u128>(), any::<u64>()).prop_map(|(client, sequence)| {
        OwnerId::new(Uuid::from_u128(client), sequence >> 1, LockMode::Exclusive)
    })
}

fn text() -> impl Strategy<Value = Option<String>> {
    prop::option::of("[^\\p{C}\u{2028}\u{2029}]{1,40}".prop_map(|text| shown(&text)))
}

fn questions() -> impl Strategy<Value = Question> {
    prop_oneof![
        key().prop_map(|key| Question::Lock { key }),
        (".{0,40}", prop::option::of(key()))
            .prop_map(|(pattern, after)| Question::Locks { pattern, after }),
        (key(), owner(), any::<u64>(), 10..=86_400_000_u64).prop_map(
            |(key, owner, token, lease)| Question::Extend {
                key,
                owner,
                token,
                lease: Duration::from_millis(lease),
            }
        ),
        (ways(), key(), owner(), text()).prop_map(|(way, key, owner, by)| Question::Release {
            way,
            key,
            owner,
            by: by.unwrap_or_default(),
        }),
    ]
}

fn ways() -> impl Strategy<Value = Way> {
    let takes = any::<Option<u64>>().prop_map(|token| Way::Take { token });
    prop_oneof![Just(Way::Ask), Just(Way::Revoke), takes]
}

fn locks() -> impl Strategy<Value = LockInfo> {
    let texts = [text(), text(), text(), text(), text(), text()];
    let numbers = (any::<u32>(), any::<u16>(), any::<Option<u32>>());
    let rest = (any::<Option<u64>>(), any::<bool>(), any::<bool>());
    (key(), owner(), texts, numbers, rest).prop_map(|(key, owner, texts, numbers, rest)| {
        let [service, version, host, label, function, trace_id] = texts;
        let (number, waiters, millis) = numbers;
        let (token, retained, wanted) = rest;
        let millis = millis.map(|millis| Duration::from_millis(millis.into()));
        let lock = lock_of(owner, &key);
        let holder = lock.holder.map(|holder| Holder {
            service,
            version,
            host: host.unwrap_or_default(),
            pid: number,
            held_for: Duration::from_millis(number.into()),
            label,
            function,
            trace_id,
            waiter_count: waiters.into(),
            renewals: number,
            revoked_for: millis,
            value: wanted.then(|| "a\tb\n".to_owned()),
            values: number,
            ..holder
        });
        LockInfo {
            depth: number,
            ttl: millis,
            token: token.map(|token| token % TOO_LARGE_TOKEN),
            retained,
            wanted,
            holder,
            ..lock
        }
    })
}

proptest! {
    #[test]
    fn a_question_is_read_as_it_was_written(number: u64, question in questions()) {
        let from = Uuid::from_u128(7);
        let message = Message::Question(from, number, question);
        prop_assert_eq!(read(&written(&message)), Some(message));
    }

    #[test]
    fn a_report_is_read_as_it_was_written(
        number: u64,
        databases in "[0-9,]{1,9}",
        locks in prop::collection::vec(locks(), 0..5),
        more: bool,
        lost: u64,
    ) {
        let report = Report::Locks { locks, databases, more, lost };
        let message = Message::Report(number, report);
        prop_assert_eq!(read(&written(&message)), Some(message));
    }

    #[test]
    fn texts_of_a_corrupted_report_are_short_and_without_control_characters(
        lock in locks(),
        at: prop::sample::Index,
        byte: u8,
        cut: prop::sample::Index,
    ) {
        let (locks, databases) = (vec![lock], "0".to_owned());
        let report = Report::Locks { locks, databases, more: false, lost: 0 };
        let mut message = written(&Message::Report(7, report));
        let length = message.len();
        message[at.index(length)] = byte;
        message.truncate(cut.index(length) + 1);
        if let Some(Message::Report(_, Report::Locks { locks, .. })) = read(&message) {
            for holder in locks.into_iter().filter_map(|lock| lock.holder) {
                let texts = [Some(holder.host), holder.service, holder.version, holder.function];
                for text in texts.into_iter().flatten() {
                    prop_assert!(text.chars().count() <= MOST_SHOWN);
                    prop_assert!(!text.contains(char::is_control), "{:?}", text);
                }
            }
        }
    }

    #[test]
    fn reading_any_bytes_does_not_panic(message: Vec<u8>, text in "@(ask|tell|leads)\t[0-9a-f\t%-]{0,200}") {
        let _ = read(&message);
        let _ = read(text.as_bytes());
    }
}

fn lock_of(owner: OwnerId, key: &Key) -> LockInfo {
    LockInfo {
        key: key.as_str().to_owned(),
        owner: owner.to_string(),
        depth: 4,
        ttl: Some(Duration::from_micros(5_999)),
        token: None,
        retained: true,
        holder: Some(Holder {
            mode: LockMode::Exclusive,
            service: None,
            version: Some("6%".to_owned()),
            host: "h".to_owned(),
            pid: 7,
            held_for: Duration::from_secs(8),
            label: Some("l".to_owned()),
            function: Some("a::f".to_owned()),
            trace_id: None,
            waiter_count: 9,
            renewals: 10,
            revoked_for: Some(Duration::from_millis(11)),
            value: Some("1:2".to_owned()),
            values: 12,
        }),
        address: None,
        queued_owners: Vec::new(),
        waiters: Vec::new(),
        holder_count: 0,
        permits_taken: 0,
        other_owners: Vec::new(),
        wanted: false,
    }
}

/// Clients of different versions read each other's messages.
#[test]
fn the_text_of_messages_stays_as_it_is() {
    let from = Uuid::from_u128(7);
    let key = Key::parse("{t}:k").expect("valid");
    let asked = |question| Message::Question(from, 1, question);
    let asked_to = |way| {
        asked(Question::Release {
            way,
            key: key.clone(),
            owner: OwnerId::new(from, 3, LockMode::Exclusive),
            by: "`s`".to_owned(),
        })
    };
    let told = |report| Message::Report(2, report);
    let lock = LockInfo {
        address: Some("not sent".to_owned()),
        queued_owners: vec!["not sent".to_owned()],
        holder_count: 1,
        ..lock_of(OwnerId::new(from, 3, LockMode::Exclusive), &key)
    };
    let uuid = "00000000-0000-0000-0000-000000000007";
    for (message, expected) in [
        (asked(Question::Client), format!("@ask\t{uuid}\t1\tclient")),
        (
            told(Report::Client {
                service: Some("s".to_owned()),
                version: None,
                host: "h".to_owned(),
                pid: 7,
            }),
            "@tell\t2\tclient\ts\t\th\t7".to_owned(),
        ),
        (
            asked(Question::Lock { key: key.clone() }),
            format!("@ask\t{uuid}\t1\tlock\t%7Bt%7D%3Ak"),
        ),
        (
            asked(Question::Locks {
                pattern: "a\t*".to_owned(),
                after: None,
            }),
            format!("@ask\t{uuid}\t1\tlocks\ta%09*\t"),
        ),
        (
            Message::Announcement("0".to_owned(), Box::new(lock.clone())),
            format!(
                "@announce\t0\t%7Bt%7D%3Ak\t{uuid}%3A3\t4\t5\t\t1\t0\t\t6%25\th\t7\t8000\tl\t\
                 a%3A%3Af\t\t9\t10\t11\t12\t1%3A2"
            ),
        ),
        (
            Message::Ended("0".to_owned(), key.clone(), 128),
            "@ended\t0\t%7Bt%7D%3Ak\t128".to_owned(),
        ),
        (
            asked_to(Way::Ask),
            format!("@ask\t{uuid}\t1\trelease\task\t%7Bt%7D%3Ak\t{uuid}%3A3\t`s`"),
        ),
        (
            asked_to(Way::Revoke),
            format!("@ask\t{uuid}\t1\trelease\trevoke\t%7Bt%7D%3Ak\t{uuid}%3A3\t`s`"),
        ),
        (
            asked_to(Way::Take { token: Some(128) }),
            format!("@ask\t{uuid}\t1\trelease\ttake\t128\t%7Bt%7D%3Ak\t{uuid}%3A3\t`s`"),
        ),
        (
            told(Report::Locks {
                locks: vec![lock],
                databases: "0".to_owned(),
                more: true,
                lost: 12,
            }),
            format!(
                "@tell\t2\tlocks\t0\t1\t12\t%7Bt%7D%3Ak\t{uuid}%3A3\t4\t5\t\t1\t0\t\t6%25\th\t7\t8000\tl\t\
                 a%3A%3Af\t\t9\t10\t11\t12\t1%3A2"
            ),
        ),
        (
            told(Report::Told(Answer::OtherHold)),
            "@tell\t2\treleased\t0".to_owned(),
        ),
        (
            told(Report::Told(Answer::Done)),
            "@tell\t2\treleased\t1".to_owned(),
        ),
        (
            told(Report::Told(Answer::NotHeld)),
            "@tell\t2\treleased\t2".to_owned(),
        ),
    ] {
        assert_eq!(
            read(expected.as_bytes()).as_ref().map(written),
            Some(written(&message))
        );
        assert_eq!(String::from_utf8(written(&message)), Ok(expected));
    }
}

#[test]
fn text_that_no_client_writes_is_no_message() {
    let from = Uuid::from_u128(7);
    for message in [
        String::new(),
        "@ask".to_owned(),
        format!("@ask\t{from}\t1\tlock\t"),
        format!("@ask\t{from}\t1\tlock\tk\tmore"),
        format!("@ask\t{from}\tx\tlock\tk"),
        format!("@ask\t{from}\t1\tunlock\tk"),
        format!("@ask\t{from}\t1\tlock\t%FF"),
        format!("@ask\t{from}\t1\tlock\t%4"),
        format!(
            "@ask\t{from}\t1\tlocks\t{}\t",
            "x".repeat(MAX_KEY_BYTES * 3)
        ),
        "@tell\t1\tlocks\t0\t2\t0".to_owned(),
        "@tell\t1\tlocks\t0\t0".to_owned(),
        "@tell\t1\tlocks\t0\t0\t0\tk\towner".to_owned(),
        "@tell\t1\tlocks\t0\t0\t0\t\t7".to_owned(),
        format!("@tell\t1\treleased\t1{}", " ".repeat(64 * 1024)),
    ] {
        assert_eq!(read(message.as_bytes()), None, "{message}");
    }
    assert_eq!(read(b"@ask\xff"), None);
}
