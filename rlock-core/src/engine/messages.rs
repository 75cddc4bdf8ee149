//! Receives the messages of other clients: queues their questions for the background, and matches replies with this
//! client's own questions.

mod fields;
mod text;

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

#[cfg(fuzzing)]
pub(crate) use self::text::read;
pub(crate) use self::text::{Answer, Message, Question, Report, fill, written};
use super::announcements::News;

/// How many questions may wait for the background. Further ones are not answered.
const MOST_QUESTIONS: usize = 256;

/// A question with its client and its number, and when it was received.
type Received = (Uuid, u64, Question, Instant);

pub(crate) struct Messages {
    answers: bool,
    received: mpsc::Sender<Received>,
    /// Held by the background that replies.
    pub(super) inbox: tokio::sync::Mutex<mpsc::Receiver<Received>>,
    asked: Mutex<HashMap<u64, oneshot::Sender<Report>>>,
}

impl Messages {
    pub(crate) fn new(answers: bool) -> Self {
        let (received, inbox) = mpsc::channel(MOST_QUESTIONS);
        Self {
            answers,
            received,
            inbox: tokio::sync::Mutex::new(inbox),
            asked: Mutex::default(),
        }
    }

    /// Handles a message of another client. Returns what it announces, and that client's databases. Text that no client
    /// writes is ignored.
    pub(crate) fn on_message(&self, message: &[u8]) -> Option<(String, News)> {
        match text::read(message) {
            Some(Message::Question(from, number, question)) if self.answers => {
                // A quorum delivers a question several times; a repeated one changes nothing more. If the queue is
                // full, the silence means that this client is busy.
                let received = (from, number, question, Instant::now());
                let _ = self.received.try_send(received);
            }
            Some(Message::Report(number, report)) => {
                let asked = self.asked().remove(&number);
                let _ = asked.map(|asked| asked.send(report));
            }
            Some(Message::Announcement(databases, info)) => {
                return Some((databases, News::Holds(info)));
            }
            Some(Message::Ended(databases, key, token)) => {
                return Some((databases, News::Ended(key, token)));
            }
            Some(Message::Question(..)) | None => {}
        }
        None
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Report>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a number for a new question, and the receiver of its answer. Forgets questions without a receiver.
    pub(super) fn ask(&self) -> (u64, oneshot::Receiver<Report>) {
        // Open questions are few, so that random numbers do not meet.
        let number = fastrand::u64(..);
        let (sender, report) = oneshot::channel();
        let mut asked = self.asked();
        asked.retain(|_, sender| !sender.is_closed());
        asked.insert(number, sender);
        (number, report)
    }
}
