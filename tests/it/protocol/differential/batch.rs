//! Requests that share a script.

use redis::{Commands, Script, ScriptInvocation};
use rlock_model::{
    differential::{FAST, KEYS, Operation, Reply},
    words::{Acquired, Fence, Key, Owner},
};

use super::{FENCE_TTL, Scripted, lock, name};

/// The complete data of a lock on the server.
#[derive(Debug, PartialEq, Eq)]
struct Raw {
    holders: Vec<(String, String)>,
    queue: Vec<(String, String)>,
    ends: [bool; 2],
    fence: Option<Fence>,
}

/// Returns the key and the owner of a request.
fn of(request: &Operation) -> (Key, Owner) {
    match request {
        Operation::Acquire(ask) => (ask.claims[0].key, ask.claims[0].owner),
        request => panic!("{request:?} is not sent in a batch"),
    }
}

fn begun<'a>(script: &'a Script, requests: &[Operation]) -> ScriptInvocation<'a> {
    let mut call = script.prepare_invoke();
    for request in requests {
        call.key(lock(of(request).0));
    }
    call
}

impl Scripted {
    /// Executes the requests that can share a script. The others leave the data unchanged.
    pub(crate) fn serve(&mut self, requests: &[Operation]) -> Vec<Option<Reply>> {
        let before = self.raw();
        let mut call = begun(&self.scripts.acquire_batch, requests);
        call.arg(FENCE_TTL);
        for request in requests {
            call.arg(name(of(request).1));
            if let Operation::Acquire(ask) = request {
                assert!(ask.count == 1 && ask.claims.len() == 1, "of the usual kind");
                call.arg(ask.lease);
            }
        }
        let replies: Vec<u64> = call.invoke(&mut self.commands).expect("no error");
        self.assert_left_alone(&before, requests, &replies);
        let reply = |reply: u64| match reply {
            0 => None,
            fence => Some(Reply::Acquired(Acquired::Granted {
                fences: vec![fence],
                others_wait: false,
            })),
        };
        replies.into_iter().map(reply).collect()
    }

    fn assert_left_alone(&mut self, before: &[Raw], requests: &[Operation], replies: &[u64]) {
        let after = self.raw();
        if self.reset_at.elapsed() >= FAST {
            // A lease may have ended in between.
            return;
        }
        for (key, (before, after)) in (0..).zip(before.iter().zip(after)) {
            let mut to_this = requests
                .iter()
                .zip(replies)
                .filter(|(request, _)| of(request).0 == key);
            if to_this.any(|(_, reply)| *reply != 0) {
                continue;
            }
            assert_eq!(after, *before, "left alone");
        }
    }

    fn raw(&mut self) -> Vec<Raw> {
        (0..KEYS).map(|key| self.raw_of(&lock(key))).collect()
    }

    fn raw_of(&mut self, lock: &str) -> Raw {
        let (queue, fence) = (format!("{lock}:queue"), format!("{lock}:fence"));
        let commands = &mut self.commands;
        let mut ends = |key: &str| commands.pttl::<_, i64>(key).expect("no error") > 0;
        let (lock_ends, queue_ends, fence_ends) = (ends(lock), ends(&queue), ends(&fence));
        let fence: Option<Fence> = commands.get(&fence).expect("no error");
        assert_eq!(fence_ends, fence.is_some(), "every fence ends");
        Raw {
            holders: commands.hgetall(lock).expect("no error"),
            queue: commands.zrange_withscores(&queue, 0, -1).expect("no error"),
            ends: [lock_ends, queue_ends],
            fence,
        }
    }
}
