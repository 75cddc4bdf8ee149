//! Messages between clients: the questions that this client received, and those that it has asked.

mod reading;
mod text;

use std::{collections::HashMap, time::Instant};

use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

#[cfg(fuzzing)]
pub(crate) use self::reading::read;
use self::text::Message;
pub(crate) use self::text::{Answer, Question, Report, ReportWriter, question, released};
use crate::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// How many questions may wait for the background. Further ones are not answered.
const MOST_QUESTIONS: usize = 256;

pub(crate) struct Messages {
    answers: bool,
    received: mpsc::Sender<Received>,
    /// Held by the background that replies.
    pub(super) inbox: tokio::sync::Mutex<mpsc::Receiver<Received>>,
    asked: Mutex<HashMap<u64, oneshot::Sender<Report>>>,
    number: AtomicU64,
}

pub(super) struct Received {
    pub(super) from: Uuid,
    pub(super) number: u64,
    pub(super) question: Question,
    at: Instant,
}

impl Received {
    /// Returns whether the asking client no longer waits for the answer. The lock is not given up then.
    pub(super) fn is_too_late(&self) -> bool {
        self.at.elapsed() > self.question.longest_silence()
    }
}

impl Messages {
    pub(crate) fn new(answers: bool) -> Self {
        let (received, inbox) = mpsc::channel(MOST_QUESTIONS);
        Self {
            answers,
            received,
            inbox: tokio::sync::Mutex::new(inbox),
            asked: Mutex::default(),
            number: AtomicU64::new(1),
        }
    }

    /// Handles a message of another client. Messages that make no sense are ignored.
    pub(crate) fn on_message(&self, message: &[u8]) {
        match reading::read(message) {
            Some(Message::Question {
                from,
                number,
                question,
            }) if self.answers => {
                // A quorum delivers a question several times; a repeated one changes nothing more. If the queue is
                // full, the silence means that this client is busy.
                let _ = self.received.try_send(Received {
                    from,
                    number,
                    question,
                    at: Instant::now(),
                });
            }
            Some(Message::Report { number, report }) => {
                let asked = self.asked().remove(&number);
                if let Some(asked) = asked {
                    let _ = asked.send(report);
                }
            }
            Some(Message::Question { .. }) | None => {}
        }
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Report>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a number for a new question, and the receiver of its answer. Forgets questions without a receiver.
    pub(super) fn ask(&self) -> (u64, oneshot::Receiver<Report>) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (sender, report) = oneshot::channel();
        let mut asked = self.asked();
        asked.retain(|_, sender| !sender.is_closed());
        asked.insert(number, sender);
        (number, report)
    }
}
