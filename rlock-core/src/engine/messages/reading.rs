//! Reads messages. Whatever makes no sense is no message.

use std::{str::FromStr, time::Duration};

use super::text::{Answer, Message, Question, Report};
use crate::{
    escape_control::shown,
    info::{Holder, LockInfo},
    key::{Key, unescape},
    limits::LONGEST_PATTERN,
    owner::OwnerId,
};

/// The longest message that is read. The longest lock fits beside a report that is almost full.
const MOST_BYTES: usize = 64 * 1024;

/// What was read, or `None` if the message makes no sense.
type Read<T> = Option<T>;

/// The fields that are not read yet.
struct Fields<'a>(std::iter::Peekable<std::str::Split<'a, char>>);

impl Fields<'_> {
    fn raw(&mut self) -> Read<String> {
        self.0.next().and_then(unescape)
    }

    fn value<T: FromStr>(&mut self) -> Read<T> {
        self.raw()?.parse().ok()
    }

    /// Returns `None` for an empty field.
    fn optional<T: FromStr>(&mut self) -> Read<Option<T>> {
        match self.raw()?.as_str() {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        }
    }

    fn flag(&mut self) -> Read<bool> {
        match self.raw()?.as_str() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        }
    }

    fn key(&mut self) -> Read<Key> {
        Key::parse(&self.raw()?).ok()
    }

    fn owner(&mut self) -> Read<OwnerId> {
        OwnerId::parse(&self.raw()?)
    }

    fn text(&mut self) -> Read<String> {
        self.raw().as_deref().map(shown)
    }

    fn optional_text(&mut self) -> Read<Option<String>> {
        let text = self.text()?;
        Some((!text.is_empty()).then_some(text))
    }

    fn question(&mut self) -> Read<Question> {
        Some(match self.raw()?.as_str() {
            "lock" => Question::Lock { key: self.key()? },
            "locks" => Question::Locks {
                pattern: self.raw().filter(|text| text.len() <= LONGEST_PATTERN)?,
                after: match &*self.raw()? {
                    "" => None,
                    after => Some(Key::parse(after).ok()?),
                },
            },
            "release" => Question::Release {
                key: self.key()?,
                owner: self.owner()?,
                token: self.optional()?,
                at_once: self.flag()?,
                by: self.text()?,
            },
            _ => return None,
        })
    }

    fn report(&mut self) -> Read<Report> {
        match self.raw()?.as_str() {
            "locks" => {
                let (databases, more, lost) = (self.text()?, self.flag()?, self.value()?);
                let mut locks = Vec::new();
                while self.0.peek().is_some() {
                    locks.push(self.lock()?);
                }
                Some(Report::Locks {
                    locks,
                    databases,
                    more,
                    lost,
                })
            }
            "released" => Some(Report::Released(match self.raw()?.as_str() {
                "0" => Answer::OtherHold,
                "1" => Answer::Released,
                "2" => Answer::NotHeld,
                _ => return None,
            })),
            _ => None,
        }
    }

    fn lock(&mut self) -> Read<LockInfo> {
        Some(LockInfo {
            key: self.key()?.as_str().to_owned(),
            owner: self.owner()?.to_string(),
            count: self.value()?,
            ttl: self.optional()?.map(Duration::from_millis),
            token: self.optional()?,
            retained: self.flag()?,
            wanted: self.flag()?,
            holder: Some(Holder {
                service: self.optional_text()?,
                version: self.optional_text()?,
                host: self.text()?,
                pid: self.value()?,
                held_for: Duration::from_millis(self.value()?),
                lock: self.optional_text()?,
                function: self.optional_text()?,
                trace_id: self.optional_text()?,
                waiters: self.value()?,
                renewals: self.value()?,
                revoked_for: self.optional()?.map(Duration::from_millis),
            }),
            address: None,
            queue: Vec::new(),
        })
    }
}

/// Reads a message. Returns `None` if it makes no sense.
pub(crate) fn read(message: &[u8]) -> Option<Message> {
    let message = std::str::from_utf8(message).ok()?;
    if message.len() > MOST_BYTES {
        return None;
    }
    let mut fields = Fields(message.split('\t').peekable());
    let message = match fields.0.next()? {
        "@ask" => Message::Question {
            from: fields.value()?,
            number: fields.value()?,
            question: fields.question()?,
        },
        "@tell" => Message::Report {
            number: fields.value()?,
            report: fields.report()?,
        },
        _ => return None,
    };
    fields.0.next().is_none().then_some(message)
}
