//! What all handles of a client and its background share: shell, store, options, and the listener for notifications.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rlock_proto::{
    key::Key,
    machine::{Event, Input, Machine, Owner},
    mode::LockMode,
    owner::OwnerId,
    store::{KeyFilter, Listener, Notification},
};
use tokio::{runtime::Handle, sync::SetOnce, time::sleep};
use uuid::Uuid;

use crate::{
    caller::note_caller,
    clock::ClientClock,
    engine::{holders::HolderReplies, shell::Shell, thread::ClientThread, unread::Unread},
    options::Options,
    store::{Store, quorum::IsHeld},
};

pub(crate) struct Core {
    pub(crate) id: Uuid,
    pub(crate) clock: ClientClock,
    pub(crate) options: Options,
    /// Whether a majority of servers decides.
    pub(crate) needs_majority: bool,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) shell: Arc<Shell>,
    pub(crate) holder_replies: HolderReplies,
    pub(crate) thread: ClientThread,
    /// The number of locks that were held when the client was closed.
    closed: SetOnce<usize>,
    draining: SetOnce<()>,
    background_ended: SetOnce<()>,
}

impl Core {
    pub(crate) fn new(
        id: Uuid,
        clock: ClientClock,
        (options, needs_majority): (Options, bool),
        store: Arc<dyn Store>,
        shell: Arc<Shell>,
        thread: ClientThread,
    ) -> Self {
        let _ = shell.announcements.databases.set(store.databases());
        Self {
            id,
            clock,
            options,
            needs_majority,
            store,
            shell,
            holder_replies: HolderReplies::default(),
            thread,
            closed: SetOnce::new(),
            draining: SetOnce::new(),
            background_ended: SetOnce::new(),
        }
    }

    pub(crate) fn owner_id(&self, owner: Owner, mode: LockMode) -> OwnerId {
        OwnerId::new(self.id, owner, mode)
    }

    /// Closes the client: from now on no lock is acquired, and its holds are lost.
    pub(crate) fn close(&self) {
        let owned = self.shell.read(|machine, _| {
            let owned = machine.ownerships().filter(|own| own.is_owned());
            owned.count()
        });
        let _ = self.closed.set(owned);
        self.shell.on(Input::Close);
    }

    /// Refuses new calls outside of holds from now on.
    pub(crate) fn drain(&self) {
        let _ = self.draining.set(());
        self.shell.on(Input::Drain);
    }

    /// Resolves when the client drains.
    pub(crate) async fn until_draining(&self) {
        self.draining.wait().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.initialized()
    }

    /// Returns how many locks were held when the client was closed.
    pub(crate) fn held_at_close(&self) -> usize {
        self.closed.get().copied().unwrap_or_default()
    }

    /// Notes that the background no longer renews or releases. With `use_tokio_clock`, the timers may have stopped,
    /// too.
    pub(crate) fn end_background(&self) {
        self.close();
        let _ = self.background_ended.set(());
        self.shell.on(Input::End);
    }

    /// Resolves when the background has ended.
    pub(crate) async fn background_ended(&self) {
        self.background_ended.wait().await;
    }

    /// Runs a future on the executor that polls it, with the timers of the client's thread.
    pub(crate) async fn in_runtime<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let (_noted, _entered) = (note_caller(), Handle::enter(&self.thread.runtime));
            future.as_mut().poll(cx)
        })
        .await
    }

    /// The same until the client is closed: then returns `None`. Watches whether a call that acquires is polled.
    pub(super) async fn sent_until_closed<F: Future>(
        &self,
        mut future: Pin<&mut F>,
        unread: Option<Arc<Unread>>,
    ) -> Option<F::Output> {
        let mut closed = pin!(self.closed.wait());
        poll_fn(|cx| {
            if self.is_closed() {
                return Poll::Ready(None);
            }
            let (_noted, _entered) = (note_caller(), Handle::enter(&self.thread.runtime));
            let begun = unread.as_ref().map(|unread| unread.begins_poll(cx.waker()));
            let waker = begun.as_ref().map_or(cx.waker(), |(waker, _)| waker);
            let polled = future.as_mut().poll(&mut Context::from_waker(waker));
            if let Poll::Ready(output) = polled {
                return Poll::Ready(Some(output));
            }
            if let (Some(unread), Some((_, true))) = (&unread, begun) {
                unread.waits_on();
            }
            closed.as_mut().poll(cx).map(|_| None)
        })
        .await
    }

    /// The same for a future that is not part of a call that acquires.
    pub(crate) async fn in_runtime_until_closed<F: Future>(&self, future: F) -> Option<F::Output> {
        self.sent_until_closed(pin!(future), None).await
    }

    /// Waits for this time, or until the client is closed.
    pub(crate) async fn pause(&self, time: Duration) {
        // Made when it is polled, because the caller's executor may have no timers.
        let pause = async { sleep(time).await };
        self.in_runtime_until_closed(pause).await;
    }
}

/// Returns the function by which a quorum finds out whether this client still has a lock.
pub(crate) fn is_held(shell: Arc<Shell>) -> IsHeld {
    Arc::new(move |claim| {
        shell.read(|machine, now| {
            let own = machine.own(&claim.key, claim.owner.sequence());
            own.is_some_and(|own| own.is_present(now))
        })
    })
}

/// Returns the handler of the store's notifications.
pub(crate) fn listener(shell: Arc<Shell>, client: Uuid) -> Listener {
    let missed = |shell: &Shell, filter: &KeyFilter, is_heard| {
        let keys = |machine: &Machine, _| machine.slots().map(|slot| slot.key().clone()).collect();
        let keys: Vec<Key> = shell.read(keys);
        for key in keys.into_iter().filter(|key| filter.matches(key)) {
            shell.on_event(key, None, Event::Missed { is_heard });
        }
        if is_heard {
            shell.announcements.missed(filter);
        }
    };
    Arc::new(move |notification| match notification {
        Notification::Granted { .. } | Notification::Wanted { .. } | Notification::Retry { .. } => {
            if let Some((key, owner, event)) = Event::of(notification)
                && owner.is_of(client)
            {
                shell.on_event(key, Some(owner.sequence()), event);
            }
        }
        Notification::PermitsDiffer { key, mine, theirs } => shell.disputes.add(key, mine, theirs),
        Notification::Message(message) => {
            if let Some((databases, news)) = shell.messages.on_message(&message) {
                shell.announcements.hear(&databases, &news);
            }
        }
        Notification::Changed(key) => shell.changed(key),
        Notification::Disconnected => missed(&shell, &KeyFilter::All, false),
        Notification::SomeChanged(filter) => missed(&shell, &filter, true),
    })
}
