//! Messages between clients, as text: fields separated by tabs, each escaped as values in keys are.
//!
//! ```text
//! @ask  <from> <number> lock    <key>
//! @ask  <from> <number> locks   <pattern> <after, or empty>
//! @ask  <from> <number> release <key> <owner> <token, or empty> <1: at once> <who asks>
//! @ask  <from> <number> resign  <key> <owner> <token>
//! @ask  <from> <number> client
//! @tell <number> locks    <databases> <1: there are more> <locks lost so far> { <lock> }
//! @tell <number> client   <service, or empty> <version, or empty> <host> <process id>
//! @tell <number> released <1: it is being released, 0: another hold has it, 2: it is not held>
//! @leads <databases> <lock>
//! ```
//!
//! Channels have no database, so a list also gets replies from clients of other databases, and announcements of their leaders
//! arrive. Each names the databases of its client.
//!
//! Every user who may publish on the server can write such a message. So text that makes no sense is ignored, and
//! texts to show are cut, without control characters.

use std::{iter, str, time::Duration};

use rlock_proto::{
    escape_control::shown,
    key::{Key, escape, unescape},
    owner::OwnerId,
    store::{TOKENS, TOO_LARGE_FENCE},
};
use uuid::Uuid;

use crate::{
    info::{Holder, LockInfo},
    limits::{LONGEST_PATTERN, MAX_VALUE},
};

/// Tokens from here on cannot come from a fence, so a message that has one is forged.
const TOO_LARGE_TOKEN: u64 = TOO_LARGE_FENCE * TOKENS;

/// The longest message that is read. It leaves room for the longest lock after a report that is almost full.
const MOST_BYTES: usize = 64 * 1024;
/// The length from which a report is full.
const FULL: usize = 40 * 1024;

/// How long a holder may take to reply. After a longer silence it counts as stuck or cut off.
const SILENCE: Duration = Duration::from_millis(200);
/// The same for a part of a list, which takes a client with many locks longer.
const SILENCE_FOR_LIST: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// Who holds this lock?
    Lock { key: Key },
    /// Which locks with such keys does the client own? The answer is in order of the keys, and begins after this one.
    Locks { pattern: String, after: Option<Key> },
    /// Release this lock: at once, or when its body has stopped.
    Release {
        key: Key,
        owner: OwnerId,
        token: Option<u64>,
        at_once: bool,
        by: String,
    },
    /// Resign from this leadership after the present work.
    Resign {
        key: Key,
        owner: OwnerId,
        token: u64,
    },
    /// Who is the client?
    Client,
}

impl Question {
    /// Returns how long the answer is waited for.
    pub(crate) fn longest_silence(&self) -> Duration {
        let is_list = matches!(self, Self::Locks { .. });
        if is_list { SILENCE_FOR_LIST } else { SILENCE }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    Locks {
        locks: Vec<LockInfo>,
        /// The databases of the client.
        databases: String,
        /// The client has others.
        more: bool,
        /// How many locks the client has lost so far.
        lost: u64,
    },
    Released(Answer),
    Client {
        service: Option<String>,
        version: Option<String>,
        host: String,
        pid: u32,
    },
}

/// The answer to a request for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The lock is released, or about to be.
    Released,
    /// The present hold has another token.
    OtherHold,
    /// The client does not hold the lock.
    NotHeld,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// Of this client, which has given it this number.
    Question(Uuid, u64, Question),
    /// The answer to the question of this number.
    Report(u64, Report),
    /// In these databases, this owner leads, in the term of its token.
    Leads(String, Box<LockInfo>),
}

/// The fields that are not read yet.
pub(crate) type Reader<'a> = iter::Peekable<str::Split<'a, char>>;

pub(crate) trait Fields: Sized {
    fn write(&self, to: &mut Vec<String>);
    /// Returns `None` if the fields make no sense.
    fn read(from: &mut Reader<'_>) -> Option<Self>;
}

/// Reads and unescapes one field.
fn raw(from: &mut Reader<'_>) -> Option<String> {
    from.next().and_then(unescape)
}

/// Describes types of one field: how its text is made and parsed.
macro_rules! field {
    ($($($type:ty)+: $text:expr, $parse:expr;)*) => {$($(
        impl Fields for $type {
            fn write(&self, to: &mut Vec<String>) {
                let text: fn(&Self) -> String = $text;
                to.push(escape(text(self)).to_string());
            }

            fn read(from: &mut Reader<'_>) -> Option<Self> {
                let parse: fn(&str) -> Option<Self> = $parse;
                parse(&raw(from)?)
            }
        }
    )+)*};
}

field! {
    u32 u64 usize Uuid: Self::to_string, |text| text.parse().ok();
    OwnerId: Self::to_string, Self::parse;
    Key: |key| key.as_str().to_owned(), |text| Self::parse(text).ok();
    String: Self::clone, |text| Some(shown(text));
    Duration: |time| time.as_millis().to_string(), |text| text.parse().ok().map(Self::from_millis);
    bool: |is| u8::from(*is).to_string(), |text| Some(text == "1").filter(|is| *is || text == "0");
}

/// `None` is an empty field.
impl<T: Fields> Fields for Option<T> {
    fn write(&self, to: &mut Vec<String>) {
        match self {
            Some(value) => value.write(to),
            None => to.push(String::new()),
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let none = from.next_if_eq(&"").map(|_| None);
        none.or_else(|| T::read(from).map(Some))
    }
}

impl<T: Fields> Fields for Box<T> {
    fn write(&self, to: &mut Vec<String>) {
        T::write(self, to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        T::read(from).map(Self::new)
    }
}

/// Takes all fields that are left.
impl<T: Fields> Fields for Vec<T> {
    fn write(&self, to: &mut Vec<String>) {
        for value in self {
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        iter::from_fn(|| from.peek().is_some().then(|| T::read(from))).collect()
    }
}

/// Describes the fields of a struct, or of each variant of an enum after its tag, for both directions. Some are read
/// with a function of their own, and those after a semicolon are not sent.
macro_rules! fields {
    (@ $from:ident) => { Fields::read($from) };
    (@ $from:ident $read:expr) => {{
        let read: fn(&mut Reader<'_>) -> Option<_> = $read;
        read($from)
    }};
    ($type:ty: $($($tag:literal)? $($path:ident)::+ $(($($inner:ident),*))?
        $({ $($field:ident $(= $read:expr)?),* $(; $($unsent:ident),*)? })?),*) => {
        impl Fields for $type {
            fn write(&self, to: &mut Vec<String>) {
                match self {$(
                    $($path)::+ $(($($inner),*))? $({ $($field,)* $($($unsent: _),*)? })? => {
                        $(to.push($tag.to_owned());)?
                        $($($inner.write(to);)*)?
                        $($($field.write(to);)*)?
                    }
                )*}
            }

            fn read(from: &mut Reader<'_>) -> Option<Self> {
                $(
                    let tag: &[&str] = &[$($tag)?];
                    if tag.iter().all(|tag| from.next_if_eq(tag).is_some()) {
                        $($(let $inner = Fields::read(from)?;)*)?
                        $($(let $field = fields!(@ from $($read)?)?;)*)?
                        return Some(
                            $($path)::+ $(($($inner),*))? $({ $($field,)* $($($unsent: Default::default()),*)? })?
                        );
                    }
                )*
                None
            }
        }
    };
}

fields!(Message: "@ask" Self::Question(from, number, question), "@tell" Self::Report(number, report), "@leads" Self::Leads(databases, info));
fields!(Question:
    "lock" Self::Lock { key },
    "locks" Self::Locks { pattern = |from| raw(from).filter(|it| it.len() <= LONGEST_PATTERN), after },
    "release" Self::Release { key, owner, token, at_once, by },
    "resign" Self::Resign { key, owner, token },
    "client" Self::Client
);
fields!(Report:
    "locks" Self::Locks { databases, more, lost, locks },
    "released" Self::Released(answer),
    "client" Self::Client { service, version, host, pid }
);
fields!(Answer: "0" Self::OtherHold, "1" Self::Released, "2" Self::NotHeld);
fields!(LockInfo: Self {
    key = |from| Key::read(from).map(|key| key.as_str().to_owned()),
    owner = |from| OwnerId::read(from).map(|owner| owner.to_string()),
    depth, ttl,
    token = |from| Option::read(from).filter(|token| token.is_none_or(|token: u64| token < TOO_LARGE_TOKEN)),
    retained, wanted,
    holder = |from| Holder::read(from).map(Some);
    address, queued_owners, waiters, holder_count, other_owners
});
fields!(Holder: Self {
    service, version, host, pid, held_for, label, function, trace_id, waiter_count, renewals, revoked_for, values,
    value = |from| Some(raw(from)?).filter(|value| value.len() <= MAX_VALUE).map(|value| Some(value).filter(|value| !value.is_empty()));
    mode
});

pub(crate) fn written(message: &impl Fields) -> Vec<u8> {
    let mut fields = Vec::new();
    message.write(&mut fields);
    fields.join("\t").into_bytes()
}

/// Reads a message. Returns `None` if it makes no sense.
pub(crate) fn read(message: &[u8]) -> Option<Message> {
    let message = Some(message).filter(|message| message.len() <= MOST_BYTES)?;
    let mut from = str::from_utf8(message).ok()?.split('\t').peekable();
    let message = Message::read(&mut from)?;
    from.next().is_none().then_some(message)
}

/// Takes locks, whose texts are [`shown`](crate::escape_control::shown), until a report of them is full.
pub(crate) fn fill(locks: impl Iterator<Item = LockInfo>) -> Vec<LockInfo> {
    let mut length = 0;
    let has_room = |lock: &LockInfo| {
        let before = length;
        length += written(lock).len();
        before < FULL
    };
    locks.take_while(has_room).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use rlock_proto::{
        escape_control::{MOST_SHOWN, shown},
        key::MAX_KEY_BYTES,
        mode::LockMode,
    };

    fn key() -> impl Strategy<Value = Key> {
        "[^{}]{1,40}|[a-z]{1,3}\\{[^{}]{1,9}\\}"
            .prop_filter_map("a key", |text| Key::parse(&text).ok())
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
            (key(), owner(), any::<Option<u64>>(), any::<bool>(), text()).prop_map(
                |(key, owner, token, at_once, by)| Question::Release {
                    key,
                    owner,
                    token,
                    at_once,
                    by: by.unwrap_or_default(),
                }
            ),
        ]
    }

    fn locks() -> impl Strategy<Value = LockInfo> {
        let lock = (key(), owner(), any::<u32>(), any::<Option<u32>>());
        let rest = (
            any::<Option<u64>>(),
            any::<bool>(),
            any::<u32>(),
            any::<bool>(),
        );
        let texts = [text(), text(), text(), text(), text(), text()];
        let numbers = (
            any::<u32>(),
            any::<u32>(),
            any::<u16>(),
            any::<Option<u32>>(),
        );
        (lock, rest, texts, numbers).prop_map(|(lock, rest, texts, numbers)| {
            let [service, version, host, name, function, trace_id] = texts;
            LockInfo {
                key: lock.0.as_str().to_owned(),
                owner: lock.1.to_string(),
                depth: lock.2,
                ttl: lock.3.map(|millis| Duration::from_millis(millis.into())),
                token: rest.0.map(|token| token % TOO_LARGE_TOKEN),
                retained: rest.1,
                holder: Some(Holder {
                    mode: LockMode::Exclusive,
                    service,
                    version,
                    host: host.unwrap_or_default(),
                    pid: rest.2,
                    held_for: Duration::from_millis(numbers.0.into()),
                    label: name,
                    function,
                    trace_id,
                    waiter_count: numbers.2.into(),
                    renewals: numbers.1,
                    revoked_for: numbers.3.map(|millis| Duration::from_millis(millis.into())),
                    value: rest.3.then(|| "a\tb\n".to_owned()),
                    values: numbers.1,
                }),
                address: None,
                queued_owners: Vec::new(),
                waiters: Vec::new(),
                holder_count: 0,
                other_owners: Vec::new(),
                wanted: rest.3,
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
        fn a_message_that_was_changed_is_harmless(
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
        fn any_bytes_are_harmless(message: Vec<u8>, text in "@(ask|tell|leads)\t[0-9a-f\t%-]{0,200}") {
            let _ = read(&message);
            let _ = read(text.as_bytes());
        }
    }

    fn lock_of(from: Uuid, key: &Key) -> LockInfo {
        LockInfo {
            key: key.as_str().to_owned(),
            owner: OwnerId::new(from, 3, LockMode::Exclusive).to_string(),
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
            address: Some("not sent".to_owned()),
            queued_owners: vec!["not sent".to_owned()],
            waiters: Vec::new(),
            holder_count: 1,
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
        let told = |report| Message::Report(2, report);
        let lock = lock_of(from, &key);
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
                asked(Question::Resign {
                    key: key.clone(),
                    owner: OwnerId::new(from, 3, LockMode::Exclusive),
                    token: 128,
                }),
                format!("@ask\t{uuid}\t1\tresign\t%7Bt%7D%3Ak\t{uuid}%3A3\t128"),
            ),
            (
                Message::Leads("0".to_owned(), Box::new(lock.clone())),
                format!(
                    "@leads\t0\t%7Bt%7D%3Ak\t{uuid}%3A3\t4\t5\t\t1\t0\t\t6%25\th\t7\t8000\tl\t\
                     a%3A%3Af\t\t9\t10\t11\t12\t1%3A2"
                ),
            ),
            (
                asked(Question::Release {
                    key,
                    owner: OwnerId::new(from, 3, LockMode::Exclusive),
                    token: Some(128),
                    at_once: true,
                    by: "`s`".to_owned(),
                }),
                format!("@ask\t{uuid}\t1\trelease\t%7Bt%7D%3Ak\t{uuid}%3A3\t128\t1\t`s`"),
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
                told(Report::Released(Answer::OtherHold)),
                "@tell\t2\treleased\t0".to_owned(),
            ),
            (
                told(Report::Released(Answer::Released)),
                "@tell\t2\treleased\t1".to_owned(),
            ),
            (
                told(Report::Released(Answer::NotHeld)),
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
    fn messages_that_make_no_sense_are_none() {
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
}
