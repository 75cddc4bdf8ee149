//! Receives the messages of other clients: queues their questions for the background, and matches replies with this
//! client's own questions.

mod fields;
mod text;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

#[cfg(fuzzing)]
pub(crate) use self::text::read;
pub(crate) use self::text::{Answer, Message, Question, Report, Way, fill, written};
use super::announcements::News;

/// How many questions may wait for the background. Further ones are not answered.
const MOST_QUESTIONS: usize = 256;

/// How many numbers of questions are remembered.
const MOST_NUMBERS: usize = 256;

/// A question with its client and its number, and when it was received.
type Received = (Uuid, u64, Question, Instant);

pub(crate) struct Messages {
    answers: bool,
    received: mpsc::Sender<Received>,
    /// Held by the background that replies.
    pub(super) inbox: tokio::sync::Mutex<mpsc::Receiver<Received>>,
    asked: Mutex<HashMap<u64, oneshot::Sender<Report>>>,
    /// The numbers of the latest questions, which are random.
    known: Mutex<VecDeque<u64>>,
}

impl Messages {
    pub(crate) fn new(answers: bool) -> Self {
        let (received, inbox) = mpsc::channel(MOST_QUESTIONS);
        Self {
            answers,
            received,
            inbox: tokio::sync::Mutex::new(inbox),
            asked: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Handles a message of another client. Returns what it announces, and that client's databases. Text that no client
    /// writes is ignored.
    pub(crate) fn on_message(&self, message: &[u8]) -> Option<(String, News)> {
        match text::read(message) {
            Some(Message::Question(from, number, question))
                if self.answers && self.is_new(number) =>
            {
                // If the queue is full, the silence means that this client is busy.
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

    /// Returns whether the question with this number arrives for the first time, and remembers it. A quorum delivers
    /// each question several times, and a late copy must not concern a hold that has begun since.
    fn is_new(&self, number: u64) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !known.contains(&number);
        if is_new {
            known.truncate(MOST_NUMBERS - 1);
            known.push_front(number);
        }
        is_new
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_copy_of_a_question_is_not_answered_again() {
        let messages = Messages::new(true);
        let from = Uuid::from_u128(7);
        let questions = |number| written(&Message::Question(from, number, Question::Client));
        for number in [1, 2, 1, 3, 2] {
            messages.on_message(&questions(number));
        }
        let mut inbox = messages.inbox.try_lock().expect("free");
        let numbers: Vec<u64> = std::iter::from_fn(|| Some(inbox.try_recv().ok()?.1)).collect();
        assert_eq!(numbers, [1, 2, 3]);
        for number in 0..=1_000 {
            messages.on_message(&questions(number));
        }
        let known = messages.known.lock().expect("no panic");
        assert_eq!(known.len(), MOST_NUMBERS, "the memory is bounded");
    }
}
