//! Tells the machine when the reply to a call's request may have arrived, although its future is not polled.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};

use futures_util::task::AtomicWaker;
use rlock_proto::machine::{CallId, Input};

use super::shell::Shell;

/// Watches whether a call is polled after its task was woken, while a request of it is under way.
pub(super) struct Unread {
    shell: Arc<Shell>,
    call: CallId,
    request: u64,
    task: AtomicWaker,
    /// Whether the task was woken since the last poll began.
    is_woken: AtomicBool,
}

impl Unread {
    pub(super) fn new(shell: &Arc<Shell>, call: CallId, request: u64) -> Arc<Self> {
        Arc::new(Self {
            shell: Arc::clone(shell),
            call,
            request,
            task: AtomicWaker::new(),
            is_woken: AtomicBool::new(false),
        })
    }

    /// Begins a poll by this task. Returns the waker for the request, and whether the task was woken.
    pub(super) fn begins_poll(self: &Arc<Self>, task: &Waker) -> (Waker, bool) {
        self.task.register(task);
        let was_woken = self.is_woken.swap(false, Ordering::AcqRel);
        (Waker::from(Arc::clone(self)), was_woken)
    }

    /// Notes that a poll after a wake found no reply.
    pub(super) fn waits_on(&self) {
        self.tells(true);
        // The task may have been woken during the poll.
        if self.is_woken.load(Ordering::Acquire) {
            self.tells(false);
        }
    }

    fn tells(&self, is_polled: bool) {
        self.shell.on_drop(Input::Woken {
            call: self.call,
            request: self.request,
            is_polled,
        });
    }
}

impl Wake for Unread {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Before the task runs, which may poll the call at once.
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.tells(false);
        }
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Context, time::Duration};

    use tokio::time::sleep;

    use super::*;
    use crate::{LockClient, engine::core::Core, testing::use_tokio_clock};
    use rlock_proto::{
        few::{Few, one},
        key::Key,
        machine::{Owner, Step, WantedLock},
        mode::LockMode,
        options::LockOptions,
    };

    const LONG: Duration = Duration::from_secs(30);

    /// Returns a client with a call that has sent a request, and one that waits for its turn. Returns the former as watched.
    fn asking() -> (LockClient, Arc<Unread>) {
        let builder = use_tokio_clock(LockClient::builder()).response_timeout(LONG);
        let client = builder.in_memory().expect("a client");
        let shell = &client.core().shell;
        let begin = |call| Input::Acquire {
            call,
            locks: one(WantedLock {
                key: key(),
                mode: LockMode::Exclusive,
            }),
            inside: Few::new(),
            options: LockOptions::default(),
            runs_body: false,
        };
        let (idle, next) = (shell.call_id(), shell.call_id());
        let Some(Step::Send(request)) = shell.on(begin(idle)) else {
            panic!("the key is free");
        };
        assert_eq!(shell.on(begin(next)), Some(Step::Wait));
        let unread = Unread::new(shell, idle, request.number);
        (client, unread)
    }

    fn key() -> Key {
        Key::parse("k").expect("valid")
    }

    fn asks(core: &Core) -> Option<Owner> {
        core.shell
            .read(|machine, _| Some(machine.slot(&key())?.current()?.owner))
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_polled_without_a_reply_keeps_its_turn() {
        let (client, unread) = asking();
        let (core, before) = (client.core(), asks(client.core()));
        let request = async {
            for _ in 0..8 {
                sleep(Duration::from_millis(400)).await;
            }
        };
        core.sent_until_closed(pin!(request), Some(unread)).await;
        assert_eq!((asks(core), before.is_some()), (before, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_woken_and_not_polled_loses_its_turn_a_second_later() {
        let (client, unread) = asking();
        let (core, before) = (client.core(), asks(client.core()));
        let request = pin!(sleep(Duration::from_millis(1_500)));
        let mut sent = pin!(core.sent_until_closed(request, Some(unread)));
        let polled = sent.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        sleep(Duration::from_millis(2_400)).await;
        assert_eq!(asks(core), before);
        sleep(Duration::from_millis(200)).await;
        assert_ne!(asks(core), before);
    }
}
