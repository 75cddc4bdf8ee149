//! Messages between clients, as text: fields separated by tabs, each escaped as values in keys are.
//!
//! ```text
//! @ask  <from> <number> lock    <key>
//! @ask  <from> <number> locks   <pattern> <after, or empty>
//! @ask  <from> <number> release <key> <owner> <token, or empty> <1: at once> <who asks>
//! @tell <number> locks    <databases> <1: there are more> <locks lost so far> { <lock> }
//! @tell <number> released <1: it is being released, 0: another hold has it, 2: it is not held>
//! ```
//!
//! Channels have no database, so a list also gets replies from clients of other databases. Each reply names those of
//! its client.
//!
//! Anybody who may publish on the server can write such a message. Whatever makes no sense is no message, and texts to
//! show are cut, without control characters.

use std::{fmt::Display, time::Duration};

use uuid::Uuid;

use crate::{
    info::LockInfo,
    key::{Key, escape},
    owner::OwnerId,
};

/// How long a holder may take to reply. After a longer silence it counts as stuck or cut off.
const SILENCE: Duration = Duration::from_millis(200);
/// The same for a part of a list, which takes a client with many locks longer.
pub(crate) const SILENCE_FOR_LIST: Duration = Duration::from_secs(1);
/// The length from which a report is full.
const FULL: usize = 40 * 1024;

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
}

impl Question {
    /// Returns how long the answer is waited for.
    pub(crate) fn longest_silence(&self) -> Duration {
        match self {
            Self::Lock { .. } | Self::Release { .. } => SILENCE,
            Self::Locks { .. } => SILENCE_FOR_LIST,
        }
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
    Question {
        from: Uuid,
        number: u64,
        question: Question,
    },
    Report {
        number: u64,
        report: Report,
    },
}

struct Writer(String);

impl Writer {
    fn field(&mut self, value: impl Display) -> &mut Self {
        self.0.push('\t');
        self.0.push_str(&escape(value).to_string());
        self
    }

    /// Writes nothing for `None`.
    fn optional(&mut self, value: Option<impl Display>) -> &mut Self {
        match value {
            Some(value) => self.field(value),
            None => self.field(""),
        }
    }

    fn flag(&mut self, is_set: bool) -> &mut Self {
        self.field(u8::from(is_set))
    }
}

pub(crate) fn question(from: Uuid, number: u64, question: &Question) -> Vec<u8> {
    let mut to = Writer("@ask".to_owned());
    to.field(from).field(number);
    match question {
        Question::Lock { key } => to.field("lock").field(key.as_str()),
        Question::Locks { pattern, after } => {
            let after = after.as_ref().map(Key::as_str);
            to.field("locks").field(pattern).optional(after)
        }
        Question::Release {
            key,
            owner,
            token,
            at_once,
            by,
        } => to
            .field("release")
            .field(key.as_str())
            .field(owner)
            .optional(*token)
            .flag(*at_once)
            .field(by),
    };
    to.0.into_bytes()
}

pub(crate) struct ReportWriter {
    number: u64,
    locks: Writer,
}

impl ReportWriter {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            number,
            locks: Writer(String::new()),
        }
    }

    /// Adds a lock, whose texts are [`shown`](crate::escape_control::shown). Returns whether the report is full.
    pub(crate) fn add(&mut self, info: &LockInfo) -> bool {
        let Some(holder) = &info.holder else {
            return false;
        };
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.locks
            .field(&info.key)
            .field(&info.owner)
            .field(info.count)
            .optional(info.ttl.map(millis))
            .optional(info.token)
            .flag(info.retained)
            .flag(info.wanted)
            .optional(holder.service.as_ref())
            .optional(holder.version.as_ref())
            .field(&holder.host)
            .field(holder.pid)
            .field(millis(holder.held_for))
            .optional(holder.lock.as_ref())
            .optional(holder.function.as_ref())
            .optional(holder.trace_id.as_ref())
            .field(holder.waiters)
            .field(holder.renewals)
            .optional(holder.revoked_for.map(millis));
        self.locks.0.len() >= FULL
    }

    /// Returns the report of the locks that were added, from a client with these databases.
    pub(crate) fn locks(self, databases: &str, more: bool, lost: u64) -> Vec<u8> {
        let mut to = head(self.number, "locks");
        to.field(databases).flag(more).field(lost);
        to.0.push_str(&self.locks.0);
        to.0.into_bytes()
    }
}

pub(crate) fn released(number: u64, answer: Answer) -> Vec<u8> {
    let mut to = head(number, "released");
    to.field(match answer {
        Answer::OtherHold => 0,
        Answer::Released => 1,
        Answer::NotHeld => 2,
    });
    to.0.into_bytes()
}

fn head(number: u64, verb: &str) -> Writer {
    let mut to = Writer("@tell".to_owned());
    to.field(number).field(verb);
    to
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::reading::read, *};
    use crate::{
        escape_control::{MOST_SHOWN, shown},
        info::Holder,
        key::MAX_KEY_BYTES,
    };

    fn key() -> impl Strategy<Value = Key> {
        "[^{}]{1,40}|[a-z]{1,3}\\{[^{}]{1,9}\\}"
            .prop_filter_map("a key", |text| Key::parse(&text).ok())
    }

    fn owner() -> impl Strategy<Value = OwnerId> {
        (any::<u128>(), any::<u64>())
            .prop_map(|(client, sequence)| OwnerId::new(Uuid::from_u128(client), sequence))
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
                count: lock.2,
                ttl: lock.3.map(|millis| Duration::from_millis(millis.into())),
                token: rest.0,
                retained: rest.1,
                holder: Some(Holder {
                    service,
                    version,
                    host: host.unwrap_or_default(),
                    pid: rest.2,
                    held_for: Duration::from_millis(numbers.0.into()),
                    lock: name,
                    function,
                    trace_id,
                    waiters: numbers.2.into(),
                    renewals: numbers.1,
                    revoked_for: numbers.3.map(|millis| Duration::from_millis(millis.into())),
                }),
                address: None,
                queue: Vec::new(),
                wanted: rest.3,
            }
        })
    }

    proptest! {
        #[test]
        fn a_question_is_read_as_it_was_written(number: u64, asked in questions()) {
            let from = Uuid::from_u128(7);
            let written = question(from, number, &asked);
            let expected = Message::Question { from, number, question: asked };
            prop_assert_eq!(read(&written), Some(expected));
        }

        #[test]
        fn a_report_is_read_as_it_was_written(
            number: u64,
            databases in "[0-9,]{1,9}",
            locks in prop::collection::vec(locks(), 0..5),
            more: bool,
            lost: u64,
        ) {
            let mut writer = ReportWriter::new(number);
            for lock in &locks {
                writer.add(lock);
            }
            let written = writer.locks(&databases, more, lost);
            let report = Report::Locks { locks, databases, more, lost };
            prop_assert_eq!(read(&written), Some(Message::Report { number, report }));
        }

        #[test]
        fn an_answer_is_read_as_it_was_written(
            number: u64,
            answer in prop::sample::select(vec![Answer::Released, Answer::OtherHold, Answer::NotHeld]),
        ) {
            let expected = Message::Report { number, report: Report::Released(answer) };
            prop_assert_eq!(read(&released(number, answer)), Some(expected));
        }

        #[test]
        fn a_message_that_was_changed_is_harmless(
            lock in locks(),
            at: prop::sample::Index,
            byte: u8,
            cut: prop::sample::Index,
        ) {
            let mut writer = ReportWriter::new(7);
            writer.add(&lock);
            let mut message = writer.locks("0", false, 0);
            let length = message.len();
            message[at.index(length)] = byte;
            message.truncate(cut.index(length) + 1);
            if let Some(Message::Report { report: Report::Locks { locks, .. }, .. }) = read(&message) {
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
        fn any_bytes_are_harmless(message: Vec<u8>, text in "@(ask|tell)\t[0-9a-f\t%-]{0,200}") {
            let _ = read(&message);
            let _ = read(text.as_bytes());
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
