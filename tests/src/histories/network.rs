//! The connections of one client process, or of all, to the servers, and their faults.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{
    clock,
    collect::Recorder,
    outage::number_of,
    record::{Fault, FaultKind, Record},
    schedule::{Lane, Step},
};
use rlock_testkit::Proxy;

/// The target of network faults.
#[derive(Clone, Debug)]
pub(super) struct Front {
    pub(super) process: u32,
    /// One proxy for each server.
    pub(super) proxies: Vec<Arc<Proxy>>,
}

/// Applies one fault after the other to the current target.
pub(super) async fn strike(front: Arc<Mutex<Front>>, lane: Lane, recorder: Recorder) {
    for step in lane {
        sleep(step.pause).await;
        let front = front.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if front.proxies.is_empty() {
            return;
        }
        let struck = step.servers.iter().map(|n| {
            let number = number_of(*n, front.proxies.len());
            strike_and_note(
                &front.proxies[*n],
                (Some(front.process), number),
                &step,
                &recorder,
            )
        });
        join_all(struck).await;
        // The last reference joins a thread.
        tokio::task::block_in_place(|| drop(front));
    }
}

/// `process`: the process of the connections, unless all share them.
pub(super) async fn strike_and_note(
    proxy: &Proxy,
    (process, server): (Option<u32>, Option<usize>),
    step: &Step,
    recorder: &Recorder,
) {
    let (start, lost) = (clock::now(), proxy.replies_lost() + proxy.requests_lost());
    strike_proxy(proxy, step).await;
    let messages = proxy.replies_lost() + proxy.requests_lost() - lost;
    recorder.note(Record::Fault(Fault {
        process,
        server,
        messages: (messages > 0).then_some(messages),
        ..Fault::new(step.kind, start, clock::now())
    }));
}

async fn strike_proxy(proxy: &Proxy, step: &Step) {
    let number = u64::from(step.number);
    match step.kind {
        FaultKind::ConnectionsReset => proxy.reset(),
        FaultKind::ConnectionsHalfClosed => proxy.half_close(),
        FaultKind::ConnectionsRefused => {
            proxy.cut_off();
        }
        FaultKind::RepliesDropped => proxy.drop_replies(number),
        FaultKind::RequestsDropped => proxy.drop_requests(number),
        FaultKind::RepliesDelayed => {
            proxy.delay_replies(step.lasts);
            sleep(step.lasts * 3).await;
        }
        FaultKind::BlackHole => proxy.black_hole(),
        FaultKind::RequestsSwallowed => proxy.black_hole_requests(),
        FaultKind::RepliesSwallowed => proxy.black_hole_replies(),
        FaultKind::RequestsHeld => proxy.hold_requests(),
        FaultKind::RepliesHeld => proxy.hold_replies(),
        FaultKind::ConnectionsSilenced => proxy.half_open(),
        FaultKind::EverySecondSilenced => proxy.silence_every_second(),
        kind => unreachable!("{kind} is not a fault of a network"),
    }
    sleep(step.lasts).await;
    proxy.pass();
}
