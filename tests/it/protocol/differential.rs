//! Compares the replies of the Lua scripts on a real server with the rules of the embedded store, which the model runs.

use redis::{Commands, Connection, Script, Value};
use rlock_model::{
    differential::{CLIENTS, KEYS, KeyView, Observed, Operation, Reply, Subject, replay, run},
    words::{
        Acquire, Acquired, Claim, Entry, Fence, Holder, Key, Millis, Mode, Notification, Owner,
        Release, Released, Renew, Renewal, Renewed,
    },
};
use rlock_testkit::{RedisServer, Scripts};

/// The prefix of channels.
const CHANNELS: &str = "lock:client:";
/// How long the server keeps a fence.
const FENCE_TTL: Millis = 61_000;

struct Scripted {
    scripts: Scripts,
    /// Advances the time on the server.
    time: Script,
    commands: Connection,
    listeners: Vec<Option<Connection>>,
    client: redis::Client,
    /// The number of checks that the listeners have received everything.
    rounds: u64,
}

impl Scripted {
    fn new(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).expect("a URL");
        let commands = client.get_connection().expect("the server runs");
        Self {
            scripts: Scripts::new(),
            time: Script::new(include_str!("differential/time.lua")),
            commands,
            listeners: (0..CLIENTS).map(|_| None).collect(),
            client,
            rounds: 0,
        }
    }

    fn acquire(&mut self, ask: &Acquire) -> Acquired {
        let mut call = self.scripts.acquire.prepare_invoke();
        for claim in &ask.claims {
            call.key(lock(claim.key));
        }
        call.arg(ask.lease)
            .arg(ask.count)
            .arg(FENCE_TTL + ask.lease);
        call.arg(u8::from(ask.waits)).arg(CHANNELS).arg("first");
        call.arg(ask.floor);
        for claim in &ask.claims {
            call.arg(name(claim.owner));
        }
        let reply: Vec<i64> = call.invoke(&mut self.commands).expect("no error");
        let unsigned = |number: &i64| u64::try_from(*number).expect("not negative");
        match reply.as_slice() {
            [is_wanted @ (1 | 2), fences @ ..] => Acquired::Granted {
                fences: fences.iter().map(unsigned).collect(),
                others_wait: *is_wanted == 2,
            },
            [0, claim, ttl, queued, fences @ ..] => Acquired::Taken {
                claim: usize::try_from(*claim).expect("not negative"),
                ttl: unsigned(ttl),
                queued: *queued > 0,
                first: *queued == 2,
                fences: fences.iter().map(unsigned).collect(),
            },
            [-1] => Acquired::NotOwner,
            reply => panic!("{reply:?} to {ask:?}"),
        }
    }

    fn release(&mut self, ask: &Release) -> Released {
        let mut call = self.scripts.release.prepare_invoke();
        call.key(lock(ask.key))
            .arg(name(ask.owner))
            .arg(ask.count)
            .arg(ask.min_hold)
            .arg(ask.fence);
        call.arg(FENCE_TTL).arg(CHANNELS).arg("first");
        match call.invoke(&mut self.commands).expect("no error") {
            0 => Released::NotHeld,
            1 => Released::Done,
            reply => panic!("{reply} to {ask:?}"),
        }
    }

    fn renew(&mut self, Renew { renewals, lease }: &Renew) -> Vec<Renewed> {
        let mut call = self.scripts.renew.prepare_invoke();
        call.arg(*lease).arg(FENCE_TTL + lease);
        for Renewal { claim, fence } in renewals {
            call.key(lock(claim.key)).arg(name(claim.owner)).arg(*fence);
        }
        match call.invoke(&mut self.commands).expect("no error") {
            Value::Int(1) => vec![renewed(1); renewals.len()],
            replies => {
                let replies: Vec<i64> = redis::from_redis_value(replies).expect("one for each");
                replies.into_iter().map(renewed).collect()
            }
        }
    }

    fn view(&mut self, key: Key) -> KeyView {
        let mut call = self.scripts.inspect.prepare_invoke();
        let entry = call
            .key(lock(key))
            .invoke(&mut self.commands)
            .expect("no error");
        let queue: Vec<String> = self
            .commands
            .zrange(format!("{}:queue", lock(key)), 0, -1)
            .expect("no error");
        KeyView {
            entry: entry_of(entry),
            queue: queue.iter().map(|name| owner(name)).collect(),
        }
    }

    fn seen(&mut self, reply: Reply) -> Observed {
        Observed {
            reply,
            notifications: self.notified(),
            keys: (0..KEYS).map(|key| self.view(key)).collect(),
        }
    }

    fn leave(&mut self, client: u8) {
        self.listeners[usize::from(client)] = None;
        while self.receive(client, "are you there?") > 0 {}
        // The scripts pass over its owners later than the embedded store does.
        for key in 0..KEYS {
            let queue = format!("{}:queue", lock(key));
            let gone = self.view(key).queue.into_iter();
            for owner in gone.filter(|owner| owner.client == client) {
                let () = self.commands.zrem(&queue, name(owner)).expect("no error");
            }
        }
    }

    fn receive(&mut self, client: u8, message: &str) -> usize {
        self.commands
            .publish(channel(client), message)
            .expect("no error")
    }

    /// Returns the notifications since the last call.
    fn notified(&mut self) -> Vec<Notification> {
        self.rounds += 1;
        let last = format!("round {}", self.rounds);
        let mut notified = Vec::new();
        for client in 0..CLIENTS {
            if self.listeners[usize::from(client)].is_none() {
                continue;
            }
            assert_eq!(self.receive(client, &last), 1, "client {client} listens");
            let listener = self.listeners[usize::from(client)]
                .as_mut()
                .expect("it is there");
            loop {
                let message = listener.recv_response().expect("a message");
                let message = redis::Msg::from_owned_value(message).expect("a message");
                let text: String = message.get_payload().expect("text");
                if text == last {
                    break;
                }
                notified.push(notification(&text));
            }
        }
        notified
    }
}

fn renewed(reply: i64) -> Renewed {
    Renewed {
        held: reply != 0,
        wanted: reply < 0,
        fence: match reply.unsigned_abs() {
            0 | 1 => 0,
            fence => fence,
        },
    }
}

fn lock(key: Key) -> String {
    format!("lock:{{{key}}}")
}

fn channel(client: u8) -> String {
    format!("{CHANNELS}{client:036}")
}

/// An owner's name has the length of a real one.
fn name(owner: Owner) -> String {
    let name = format!("{:036}:{}", owner.client, owner.sequence);
    match owner.mode {
        Mode::Exclusive => name,
        Mode::Shared => name + "s",
        Mode::Permits(most) => format!("{name}.{most}p"),
    }
}

fn owner(name: &str) -> Owner {
    let (client, rest) = name.split_once(':').expect("an owner");
    let (sequence, mode) = match (rest.strip_suffix('s'), rest.strip_suffix('p')) {
        (Some(sequence), _) => (sequence, Mode::Shared),
        (_, Some(rest)) => {
            let (sequence, most) = rest.split_once('.').expect("a number of permits");
            (sequence, Mode::Permits(most.parse().expect("a number")))
        }
        _ => (rest, Mode::Exclusive),
    };
    Owner {
        client: client.parse().expect("a number"),
        sequence: sequence.parse().expect("a number"),
        mode,
    }
}

fn holder(name: &str) -> Holder {
    if name.starts_with("kept") {
        Holder::Kept
    } else {
        Holder::Owner(owner(name))
    }
}

/// The reply of `inspect.lua`.
type Inspected = (String, u8, Millis, String, Vec<String>, usize, Vec<String>);

fn entry_of(reply: Value) -> Option<Entry> {
    if matches!(&reply, Value::Array(items) if items.is_empty()) {
        return None;
    }
    let (first, count, ttl, fence, _queue, number, others): Inspected =
        redis::from_redis_value(reply).expect("an entry");
    let others = others.iter().map(|name| holder(name));
    let mut holders: Vec<Holder> = [holder(&first)].into_iter().chain(others).collect();
    assert_eq!(holders.len(), number);
    holders.sort_unstable();
    Some(Entry {
        holders,
        count,
        ttl,
        fence: fence.parse().unwrap_or_default(),
    })
}

fn notification(text: &str) -> Notification {
    let words: Vec<&str> = text.splitn(4, ' ').collect();
    let [name, what, ms, lock] = words[..] else {
        panic!("`{text}` to a waiter")
    };
    let key = lock
        .strip_prefix("lock:{")
        .and_then(|key| key.strip_suffix('}'));
    let key = key.expect("a lock").parse().expect("one of ours");
    let (owner, ms) = (owner(name), ms.parse().expect("a number"));
    if what == "wanted" {
        return Notification::Wanted { key, owner };
    }
    if what.is_empty() {
        Notification::Retry {
            key,
            owner,
            after: ms,
        }
    } else {
        let (fence, others_wait) = what.split_once('/').expect("a fence");
        Notification::Granted {
            key,
            owner,
            fence: fence.parse().expect("a number"),
            ttl: ms,
            others_wait: others_wait == "1",
        }
    }
}

impl Subject for Scripted {
    fn reset(&mut self) {
        redis::cmd("FLUSHALL")
            .exec(&mut self.commands)
            .expect("no error");
        self.notified();
        for client in 0..CLIENTS {
            let listener = &mut self.listeners[usize::from(client)];
            if listener.is_none() {
                let mut connection = self.client.get_connection().expect("the server runs");
                connection
                    .send_packed_command(
                        &redis::cmd("SUBSCRIBE")
                            .arg(channel(client))
                            .get_packed_command(),
                    )
                    .expect("no error");
                connection.recv_response().expect("subscribed");
                *listener = Some(connection);
            }
        }
    }

    fn apply(&mut self, operation: &Operation) -> Observed {
        let mut reply = Reply::None;
        match operation {
            Operation::Acquire(ask) => reply = Reply::Acquired(self.acquire(ask)),
            Operation::Release(ask) => reply = Reply::Released(self.release(ask)),
            Operation::Renew(ask) => reply = Reply::Renewed(self.renew(ask)),
            Operation::Pass(time) => {
                let mut call = self.time.prepare_invoke();
                for key in 0..KEYS {
                    call.key(lock(key));
                }
                call.arg(*time);
                call.invoke::<()>(&mut self.commands).expect("no error");
            }
            Operation::Leave(client) => self.leave(*client),
            Operation::Restart => {
                redis::cmd("FLUSHALL")
                    .exec(&mut self.commands)
                    .expect("no error");
            }
            Operation::LoseFence(key) => {
                let fence = format!("{}:fence", lock(*key));
                self.commands.del::<_, ()>(fence).expect("no error");
            }
        }
        self.seen(reply)
    }
}

#[test]
fn the_scripts_reply_as_the_model_does() {
    let server = RedisServer::start();
    let tally = run(Scripted::new(&server));
    println!("{tally:?}");
    assert!(tally.inconclusive * 10 <= tally.sequences, "{tally:?}");
    assert!(
        tally.granted > 100 && tally.taken > 100 && tally.notifications > 20,
        "{tally:?}"
    );
}

const ONE: Owner = Owner {
    client: 0,
    sequence: 0,
    mode: Mode::Exclusive,
};
const OTHER: Owner = Owner {
    client: 1,
    sequence: 0,
    mode: Mode::Exclusive,
};

fn claim(key: Key, owner: Owner) -> Claim {
    Claim { key, owner }
}

fn request(claims: &[Claim], waits: bool) -> Operation {
    request_above(0, claims, waits)
}

/// Returns an acquire with a floor, which counts from the largest fence.
fn request_above(floor: Fence, claims: &[Claim], waits: bool) -> Operation {
    Operation::Acquire(Acquire {
        claims: claims.to_vec(),
        lease: 2_000,
        count: 1,
        waits,
        floor,
    })
}

fn replays(operations: &[Operation]) {
    let server = RedisServer::start();
    replay(&mut Scripted::new(&server), operations);
}

fn release(owner: Owner, fence: Fence) -> Operation {
    Operation::Release(Release {
        key: 0,
        owner,
        fence,
        count: 0,
        min_hold: 0,
    })
}

/// As the renewals and releases of a quorum do on the servers that have a smaller fence than the others.
#[test]
fn a_renewal_and_a_release_raise_the_fence_above_the_clock() {
    const AHEAD: Fence = 1 << 30;
    let renewal = Renewal {
        claim: claim(0, ONE),
        fence: AHEAD,
    };
    let renew = Operation::Renew(Renew {
        renewals: vec![renewal],
        lease: 2_000,
    });
    replays(&[
        request(&[claim(0, ONE)], false),
        renew.clone(),
        renew,
        request(&[claim(0, OTHER)], true),
        release(ONE, AHEAD),
        release(OTHER, AHEAD),
        release(OTHER, AHEAD),
        request(&[claim(0, ONE)], false),
    ]);
}

/// As after a step of the clock back, and the end of the time for which the server keeps a fence.
#[test]
fn a_grant_and_a_hand_off_have_a_fence_above_the_floor() {
    const AHEAD: Fence = 1 << 30;
    let waiter = Owner {
        client: 2,
        sequence: 0,
        mode: Mode::Exclusive,
    };
    replays(&[
        request_above(AHEAD, &[claim(0, ONE)], false),
        request(&[claim(0, waiter)], true),
        Operation::Pass(2_100),
        Operation::LoseFence(0),
        // Hands the lock off to the waiter.
        request_above(AHEAD, &[claim(0, OTHER)], true),
        release(waiter, 0),
        release(OTHER, 0),
        Operation::LoseFence(0),
        request_above(1, &[claim(0, ONE), claim(1, ONE)], false),
    ]);
}

/// The holder cannot tell it from another owner, so its renewal gets no new fence.
#[test]
fn a_waiter_that_is_gone_uses_a_fence_up() {
    let [holder, gone] = [2, 0].map(|client| Owner {
        client,
        sequence: 2,
        mode: Mode::Shared,
    });
    let server = RedisServer::start();
    let mut scripted = Scripted::new(&server);
    scripted.reset();
    for step in [
        request(&[claim(0, ONE)], false),
        Operation::Leave(gone.client),
        request(&[claim(0, holder)], true),
        request(&[claim(0, gone)], true),
    ] {
        scripted.apply(&step);
    }
    let told = scripted.apply(&release(ONE, 0)).notifications;
    let [Notification::Granted { owner, fence, .. }] = told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(owner, holder);
    let mut renewed = |fence| {
        let claim = claim(0, holder);
        let renewals = vec![Renewal { claim, fence }];
        let lease = 2_000;
        scripted.renew(&Renew { renewals, lease })[0].fence
    };
    assert_eq!(renewed(fence + 1), 0);
    assert!(renewed(fence + 2) > fence + 1);
}

#[test]
fn a_renewal_sets_no_new_fence_after_other_owners() {
    let server = RedisServer::start();
    let mut scripted = Scripted::new(&server);
    scripted.reset();
    let mut granted = |owner| {
        let reply = scripted.apply(&request(&[claim(0, owner)], false)).reply;
        let Reply::Acquired(Acquired::Granted { fences, .. }) = reply else {
            panic!("{reply:?}");
        };
        scripted.apply(&release(owner, 0));
        fences[0]
    };
    let first = granted(ONE);
    granted(OTHER);
    scripted.apply(&request(&[claim(0, ONE)], false));
    let mut renewed = |fence| {
        let renewal = Renewal {
            claim: claim(0, ONE),
            fence,
        };
        let renewed = scripted.renew(&Renew {
            renewals: vec![renewal],
            lease: 2_000,
        });
        renewed[0].fence
    };
    assert_eq!(renewed(first + 1), 0);
    assert!(renewed(first + (1 << 30)) > first);
}

#[test]
fn a_lock_that_ended_goes_to_its_waiter_when_another_of_several_is_taken() {
    let waiter = Owner {
        client: 2,
        sequence: 0,
        mode: Mode::Exclusive,
    };
    replays(&[
        request(&[claim(0, ONE)], false),
        request(&[claim(0, waiter)], true),
        Operation::Pass(1_500),
        request(&[claim(1, ONE)], false),
        Operation::Pass(700),
        request(&[claim(0, OTHER), claim(1, OTHER)], true),
    ]);
}

#[test]
fn a_holder_whose_fence_was_lost_gets_a_new_one() {
    let server = RedisServer::start();
    let mut scripted = Scripted::new(&server);
    scripted.reset();
    let mut fence = |is_lost: bool| {
        if is_lost {
            scripted.apply(&Operation::LoseFence(0));
        }
        let reply = scripted.apply(&request(&[claim(0, ONE)], false)).reply;
        let Reply::Acquired(Acquired::Granted { fences, .. }) = reply else {
            panic!("{reply:?}");
        };
        fences[0]
    };
    let first = fence(false);
    let second = fence(true);
    assert!(second > first);
    assert_eq!(fence(false), second);
}
