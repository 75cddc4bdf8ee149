//! Curator's `LeaderLatch` with a `LeaderLatchListener`: a replica campaigns until it is closed, and tells a listener when it
//! leads and when it does not.

use rlock_core::{LockClient, LockError, LostCause, Token, election::LeaderChange};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};

use super::LONG;

/// What the listener of a replica hears.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    IsLeader(Token),
    NotLeader(Option<LostCause>),
}

/// A replica that campaigns, and its listener.
struct Latch {
    client: LockClient,
    campaigns: JoinHandle<Result<(), LockError>>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Latch {
    fn start(client: LockClient) -> Self {
        let (listener, events) = mpsc::unbounded_channel();
        let election = client.election("scheduler");
        let campaigns = tokio::spawn(async move {
            loop {
                let leadership = match election.campaign().await {
                    Ok(leadership) => leadership,
                    Err(error) if error.is_closing() => return Ok(()),
                    Err(error) => return Err(error),
                };
                let _ = listener.send(Event::IsLeader(leadership.token()));
                let end = tokio::select! {
                    cause = leadership.lost() => Some(cause),
                    () = leadership.release_requested() => None,
                };
                let _ = listener.send(Event::NotLeader(end));
                if end.is_none() {
                    leadership.resign().await?;
                }
            }
        });
        Self {
            client,
            campaigns,
            events,
        }
    }

    async fn event(&mut self) -> Event {
        let event = timeout(LONG, self.events.recv()).await;
        event.expect("in time").expect("it campaigns")
    }

    /// Resigns if it leads, and stops campaigning.
    async fn close(self) -> Result<(), LockError> {
        self.client.drain(LONG).await?;
        self.campaigns.await.expect("no panic")
    }
}

#[tokio::test]
async fn a_listener_hears_when_its_replica_leads_and_when_it_does_not() -> Result<(), LockError> {
    let url = "memory:leader-latch";
    let operator = LockClient::connect(url).await?;
    let mut first = Latch::start(LockClient::connect(url).await?);
    let Event::IsLeader(term) = first.event().await else {
        panic!("it cannot end before it has begun")
    };
    let mut second = Latch::start(LockClient::connect(url).await?);

    // The leadership is taken from the first replica, which campaigns again. Whichever leads next does so in a later term.
    assert!(operator.revoke("scheduler").await?);
    assert_eq!(
        first.event().await,
        Event::NotLeader(Some(LostCause::Revoked))
    );
    let (next, is_second) = tokio::select! {
        event = first.event() => (event, false),
        event = second.event() => (event, true),
    };
    let Event::IsLeader(next) = next else {
        panic!("{next:?}")
    };
    assert!(next > term);

    // The leader closes, and the other one leads.
    let (leader, mut other) = if is_second {
        (second, first)
    } else {
        (first, second)
    };
    leader.close().await?;
    assert!(matches!(other.event().await, Event::IsLeader(last) if last > next));
    // getLeader()
    let mut changes = operator.election("scheduler").changes()?;
    let known = timeout(LONG, changes.next()).await.expect("in time");
    assert!(matches!(known, Some(LeaderChange::Leader(_))), "{known:?}");
    other.close().await?;
    while timeout(LONG, changes.next()).await.expect("in time") != Some(LeaderChange::Nobody) {}
    assert!(operator.election("scheduler").leader().await?.is_none());
    Ok(())
}
