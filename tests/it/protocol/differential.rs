//! Compares the replies of the Lua scripts on a real server with the rules of the embedded store, which the model runs.

use std::time::Duration;

use redis::{Commands, Connection, FromRedisValue, Script, Value};
use rlock_model::{
    differential::{CLIENTS, KEYS, KeyView, Observed, Operation, Reply, Subject, replay, run},
    server::{self, owner},
};
use rlock_proto::{
    few,
    key::Key,
    lease::Time,
    mode::LockMode,
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Applied, Asks, Claim, DowngradeRequest, FENCES_A_SECOND,
        Notification, QueuePlace, ReleaseRequest, Renewal, RenewalOutcome, SetCountRequest,
        StoredLock, TakenBy,
    },
};
use rlock_testkit::{RedisServer, Scripts};

/// The prefix of channels.
const CHANNELS: &str = "lock:client:";
/// How long the server keeps a fence.
const FENCE_TTL: Duration = Duration::from_secs(61);
const LEASE: Duration = Duration::from_secs(2);

struct Scripted {
    scripts: Scripts,
    /// Advances the time on the server.
    time: Script,
    commands: Connection,
    listeners: Vec<Option<Connection>>,
    client: redis::Client,
    /// `all` at a member of a quorum, or `first`.
    waiters: &'static str,
    /// The number of checks that the listeners have received everything.
    rounds: u64,
}

impl Scripted {
    fn new(server: &RedisServer, waiters: &'static str) -> Self {
        let client = redis::Client::open(server.url()).expect("a URL");
        let commands = client.get_connection().expect("the server runs");
        Self {
            scripts: Scripts::new(),
            time: Script::new(include_str!("differential/time.lua")),
            commands,
            listeners: (0..CLIENTS).map(|_| None).collect(),
            client,
            waiters,
            rounds: 0,
        }
    }

    fn acquire(&mut self, ask: &AcquireRequest, floor: u64) -> Acquired {
        let mut call = self.scripts.acquire.prepare_invoke();
        for claim in &ask.claims {
            call.key(lock(&claim.key));
        }
        call.arg(millis(ask.lease))
            .arg(millis(FENCE_TTL + ask.lease));
        call.arg(u8::from(ask.waits))
            .arg(CHANNELS)
            .arg(self.waiters);
        call.arg(less_a_second(floor));
        for claim in &ask.claims {
            call.arg(claim.owner.to_string());
        }
        let sent_at = Time::default();
        let mut reply = match call.invoke(&mut self.commands).expect("no error") {
            Value::Array(items) => items,
            fence => {
                return Acquired::Granted {
                    fences: few::one(read::<String>(&fence).parse().expect("a fence")),
                    wanted: false,
                    sent_at,
                };
            }
        };
        // Other tests compare the numbers of permits, and whom a member names.
        while (reply.pop_if(|item| matches!(item, Value::BulkString(_)))).is_some() {}
        let reply: Vec<i64> = reply.iter().map(read).collect();
        let unsigned = |number: &i64| u64::try_from(*number).expect("not negative");
        match reply.as_slice() {
            [is_wanted @ (1 | 2), fences @ ..] => Acquired::Granted {
                fences: fences.iter().map(unsigned).collect(),
                wanted: *is_wanted == 2,
                sent_at,
            },
            [0, claim, ttl, queued, fences @ ..] => Acquired::Taken {
                claim: usize::try_from(*claim).expect("not negative"),
                ttl: Some(Duration::from_millis(unsigned(ttl))),
                queued: place(*queued),
                sent_at,
                past_fences: (fences.iter().map(unsigned))
                    .map(|fence| (fence > 0).then_some(fence))
                    .collect(),
                retired: false,
                by: TakenBy::Unnamed,
            },
            [-1] => Acquired::Outdated,
            reply => panic!("{reply:?} to {ask:?}"),
        }
    }

    fn set_count(&mut self, ask: &SetCountRequest) -> Applied {
        let mut call = self.scripts.set_count.prepare_invoke();
        call.key(lock(&ask.key))
            .arg(ask.owner.to_string())
            .arg(ask.count)
            .arg(millis(ask.lease))
            .arg(millis(FENCE_TTL + ask.lease));
        applied(call.invoke(&mut self.commands).expect("no error"))
    }

    fn downgrade(&mut self, ask: &DowngradeRequest, floor: u64) -> Applied {
        let mut call = self.scripts.downgrade.prepare_invoke();
        call.key(lock(&ask.key))
            .arg(ask.owner.to_string())
            .arg(ask.fence);
        call.arg(millis(FENCE_TTL)).arg(CHANNELS).arg(self.waiters);
        call.arg(less_a_second(floor));
        applied(call.invoke(&mut self.commands).expect("no error"))
    }

    fn release(&mut self, ask: &ReleaseRequest, floor: u64) -> Applied {
        let mut call = self.scripts.release.prepare_invoke();
        call.key(lock(&ask.key))
            .arg(ask.owner.to_string())
            .arg(millis(ask.min_hold))
            .arg(ask.fence);
        call.arg(millis(FENCE_TTL)).arg(CHANNELS).arg(self.waiters);
        call.arg(less_a_second(floor)).arg(if ask.refuses_late {
            millis(FENCE_TTL)
        } else {
            0
        });
        applied(call.invoke(&mut self.commands).expect("no error"))
    }

    fn renew(&mut self, renewals: &[Renewal], lease: Duration) -> Vec<RenewalOutcome> {
        let mut call = self.scripts.renew.prepare_invoke();
        call.arg(millis(lease)).arg(millis(FENCE_TTL + lease));
        for renewal in renewals {
            let fence = match renewal {
                Renewal { fence: 0, .. } if renewal.keeps_fence => {
                    format!("={}", renewal.last_fence)
                }
                Renewal { fence, .. } => fence.to_string(),
            };
            call.key(lock(&renewal.claim.key))
                .arg(renewal.claim.owner.to_string())
                .arg(fence);
        }
        match call.invoke(&mut self.commands).expect("no error") {
            Value::Int(1) => vec![renewed(1); renewals.len()],
            replies => {
                let replies: Vec<i64> = redis::from_redis_value(replies).expect("one for each");
                replies.into_iter().map(renewed).collect()
            }
        }
    }

    fn restore(&mut self, renewals: &[Renewal], lease: Duration) -> Vec<bool> {
        let mut call = self.scripts.restore.prepare_invoke();
        call.arg(millis(lease)).arg(millis(FENCE_TTL + lease));
        for renewal in renewals {
            call.key(lock(&renewal.claim.key))
                .arg(renewal.claim.owner.to_string())
                .arg(renewal.count)
                .arg(renewal.last_fence);
        }
        call.invoke(&mut self.commands).expect("no error")
    }

    fn view(&mut self, key: &Key) -> KeyView {
        let mut call = self.scripts.inspect.prepare_invoke();
        let entry: Value = call
            .key(lock(key))
            .invoke(&mut self.commands)
            .expect("no error");
        let queue: Vec<String> = self
            .commands
            .zrange(format!("{}:queue", lock(key)), 0, -1)
            .expect("no error");
        KeyView {
            entry: entry_of(&entry),
            queue: queue.iter().map(|name| parse(name)).collect(),
        }
    }

    fn seen(&mut self, reply: Reply) -> Observed {
        Observed {
            reply,
            notifications: self.notified(),
            keys: keys().map(|key| self.view(&key)).collect(),
        }
    }

    fn leave(&mut self, client: u8) {
        self.listeners[usize::from(client)] = None;
        while self.receive(client, "are you there?") > 0 {}
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

/// Returns the place in the queue that this number of a reply stands for.
pub(super) fn place(queued: i64) -> Option<QueuePlace> {
    (queued > 0).then_some(QueuePlace {
        first: queued == 2,
        watched: false,
        asks: Asks::probing(queued == 3),
    })
}

/// Returns the argument that passes a floor.
pub(super) fn less_a_second(floor: u64) -> u64 {
    floor.saturating_sub(FENCES_A_SECOND)
}

fn applied(reply: i64) -> Applied {
    match reply {
        0 => Applied::NotHeld,
        1 => Applied::Done,
        reply => panic!("{reply}"),
    }
}

pub(super) fn renewed(reply: i64) -> RenewalOutcome {
    match reply.unsigned_abs() {
        0 => RenewalOutcome::Lost,
        fence => RenewalOutcome::Held {
            wanted: reply < 0,
            fence: if fence == 1 { 0 } else { fence },
        },
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().expect("it is short")
}

fn keys() -> impl Iterator<Item = Key> {
    (0..KEYS).map(server::key)
}

pub(super) fn lock(key: &Key) -> String {
    format!("lock:{{{key}}}")
}

fn channel(client: u8) -> String {
    format!("{CHANNELS}{}", server::client(client))
}

pub(super) fn parse(name: &str) -> OwnerId {
    OwnerId::parse(name).expect("an owner")
}

fn read<T: FromRedisValue>(value: &Value) -> T {
    redis::from_redis_value(value.clone()).expect("as documented")
}

/// Returns the reply of `inspect.lua`.
fn entry_of(reply: &Value) -> Option<StoredLock> {
    let items: Vec<Value> = read(reply);
    let [owner, count, ttl, fence, _queue, number, others, permits] = &items[..] else {
        assert!(items.is_empty(), "{items:?}");
        return None;
    };
    let others: Vec<String> = read(others);
    let entry = StoredLock {
        owner: read(owner),
        count: read(count),
        ttl: Some(Duration::from_millis(read(ttl))),
        fence: read::<String>(fence).parse().ok(),
        other_fences: Vec::new(),
        queue: Vec::new(),
        holders: read(number),
        permits_taken: read(permits),
        others: others.iter().map(|name| parse(name)).collect(),
    };
    assert_eq!(entry.holders, entry.others.len() + 1);
    Some(entry)
}

pub(super) fn notification(text: &str) -> Notification {
    let words: Vec<&str> = text.splitn(4, ' ').collect();
    let [name, what, ms, lock] = words[..] else {
        panic!("`{text}` to a client")
    };
    let key = lock
        .strip_prefix("lock:{")
        .and_then(|key| key.strip_suffix('}'));
    let key = Key::parse(key.expect("a lock")).expect("one of ours");
    let (owner, after) = (
        parse(name),
        Duration::from_millis(ms.parse().expect("a number")),
    );
    match what.split_once('/') {
        Some((fence, others_wait)) => Notification::Granted {
            key,
            owner,
            fence: fence.parse().expect("a number"),
            ttl: after,
            wanted: others_wait == "1",
        },
        None if what == "wanted" => Notification::Wanted { key, owner },
        None => {
            assert!(what.is_empty(), "`{text}`");
            Notification::Retry { key, owner, after }
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

    fn is_member(&self) -> bool {
        self.waiters == "all"
    }

    fn apply(&mut self, operation: &Operation) -> Observed {
        let mut reply = Reply::None;
        match operation {
            Operation::Acquire(ask, floor) => reply = Reply::Acquired(self.acquire(ask, *floor)),
            Operation::SetCount(ask) => reply = Reply::Applied(self.set_count(ask)),
            Operation::Downgrade(ask, floor) => {
                reply = Reply::Applied(self.downgrade(ask, *floor));
            }
            Operation::Release(ask, floor) => reply = Reply::Applied(self.release(ask, *floor)),
            Operation::Renew(renewals, lease) => {
                reply = Reply::Renewed(self.renew(renewals, *lease));
            }
            Operation::Restore(renewals, lease) => {
                reply = Reply::Restored(self.restore(renewals, *lease));
            }
            Operation::Pass(time) => {
                let mut call = self.time.prepare_invoke();
                for key in keys() {
                    call.key(lock(&key));
                }
                call.arg(millis(*time));
                call.invoke::<()>(&mut self.commands).expect("no error");
            }
            Operation::Leave(client) => self.leave(*client),
            Operation::Restart => {
                redis::cmd("FLUSHALL")
                    .exec(&mut self.commands)
                    .expect("no error");
            }
            Operation::LoseFence(key) => {
                let fence = format!("{}:fence", lock(key));
                self.commands.del::<_, ()>(fence).expect("no error");
            }
        }
        self.seen(reply)
    }
}

#[test]
fn the_scripts_reply_as_the_model_does() {
    for waiters in ["first", "all"] {
        println!("waiters: {waiters}");
        let server = RedisServer::start();
        let tally = run(Scripted::new(&server, waiters));
        println!("{tally:?}");
        assert!(tally.inconclusive * 10 <= tally.sequences, "{tally:?}");
        let is_varied = tally.granted.min(tally.taken) > 100 && tally.notifications > 20;
        assert!(is_varied, "{tally:?}");
    }
}

/// Returns the exclusive owner of a client.
fn of(client: u8) -> OwnerId {
    owner(client, 0, LockMode::Exclusive)
}

fn claim(key: u8, client: u8) -> Claim {
    Claim {
        key: server::key(key),
        owner: of(client),
    }
}

fn request(claims: &[Claim], waits: bool) -> Operation {
    request_above(0, claims, waits)
}

/// Returns an acquire with a floor, which counts from the largest fence.
fn request_above(floor: u64, claims: &[Claim], waits: bool) -> Operation {
    let request = AcquireRequest {
        claims: claims.into(),
        lease: LEASE,
        waits,
    };
    Operation::Acquire(request, floor)
}

fn replays(operations: &[Operation]) {
    let server = RedisServer::start();
    replay(&mut Scripted::new(&server, "first"), operations);
}

#[test]
fn a_reader_whose_lease_has_ended_is_not_renewed_while_another_one_reads() {
    const MOST_OF_LEASE: Duration = Duration::from_millis(1_400);
    let reader = |client| Claim {
        owner: owner(client, 0, LockMode::Shared),
        ..claim(0, client)
    };
    replays(&[
        request(&[reader(0)], false),
        Operation::Pass(MOST_OF_LEASE),
        request(&[reader(1)], false),
        Operation::Pass(MOST_OF_LEASE),
        Operation::Renew(vec![Renewal::of(reader(0))], LEASE),
    ]);
}

/// A proxy may repeat an acquire after the release.
#[test]
fn a_member_refuses_an_acquire_of_the_owner_that_it_released_last() {
    let server = RedisServer::start();
    let mut member = Scripted::new(&server, "all");
    let reader = Claim {
        owner: owner(0, 0, LockMode::Shared),
        ..claim(0, 0)
    };
    let readers = ReleaseRequest::of(&reader);
    let acquire = request(&[claim(0, 0)], false);
    let restore = Operation::Restore(vec![Renewal::of(claim(0, 0))], LEASE);
    for [first, ended] in [
        [acquire.clone(), release(0, 1)],
        // As after a grant that is rolled back.
        [acquire.clone(), release(0, 0)],
        [
            request(std::slice::from_ref(&reader), false),
            Operation::Release(readers, 0),
        ],
    ] {
        let operations = [
            first.clone(),
            ended,
            first,
            acquire.clone(),
            request(&[claim(0, 0)], true),
            request(std::slice::from_ref(&reader), false),
            request(&[claim(1, 0), claim(0, 0)], false),
            restore.clone(),
            // An owner that never had the lock leaves, and the next one has it.
            release(1, 0),
            acquire.clone(),
            request(&[claim(0, 1)], false),
            acquire.clone(),
            release(1, 1),
            Operation::Pass(FENCE_TTL + LEASE),
            request(&[claim(0, 1)], false),
        ];
        replay(&mut member, &operations);
        member.reset();
        let replies: Vec<Reply> = (operations[..8].iter())
            .map(|operation| member.apply(operation).reply)
            .collect();
        let refused = |reply: &Reply| *reply == Reply::Acquired(Acquired::Outdated);
        assert!(replies[2..7].iter().all(refused), "{replies:?}");
        assert_eq!(replies[7], Reply::Restored(vec![false]));
        for key in keys() {
            let view = member.view(&key);
            assert!(view.entry.is_none() && view.queue.is_empty(), "{view:?}");
        }
    }
}

/// A refused acquire of two locks may be executed again after its owner has got one of them by another request.
#[test]
fn a_late_copy_takes_no_lock_from_its_owner() {
    let server = RedisServer::start();
    let both = request(&[claim(0, 0), claim(1, 0)], true);
    let operations = [
        request(&[claim(1, 1)], false),
        both.clone(),
        request(&[claim(0, 0)], true),
        both,
        request(&[claim(1, 2)], true),
        Operation::Pass(LEASE),
        request(&[claim(1, 2)], true),
    ];
    for order in ["first", "all"] {
        let mut scripted = Scripted::new(&server, order);
        let up_to_the_copy = &operations[..4];
        replay(&mut scripted, up_to_the_copy);
        let holder = scripted
            .view(&claim(0, 0).key)
            .entry
            .map(|entry| entry.owner);
        assert_eq!(holder, Some(claim(0, 0).owner.to_string()), "{order}");
        replay(&mut scripted, &operations);
    }
}

/// The acquires are on their way over a connection that the client has given up.
#[test]
fn a_server_refuses_acquires_that_arrive_after_their_owners_release() {
    let (late, later) = (
        claim(0, 0),
        Claim {
            owner: owner(0, 1, LockMode::Exclusive),
            ..claim(0, 0)
        },
    );
    let refuses_late = |claim| {
        Operation::Release(
            ReleaseRequest {
                refuses_late: true,
                ..ReleaseRequest::of(claim)
            },
            0,
        )
    };
    let reader = Claim {
        owner: owner(0, 0, LockMode::Shared),
        ..claim(0, 0)
    };
    let acquires = [
        request(std::slice::from_ref(&late), true),
        request(std::slice::from_ref(&later), false),
        request(&[reader], true),
        request(&[claim(1, 0), late.clone()], false),
        request(&[claim(0, 1)], true),
        request(
            &[Claim {
                owner: owner(0, 2, LockMode::Exclusive),
                ..claim(0, 0)
            }],
            true,
        ),
    ];
    let mut operations = vec![refuses_late(&later), refuses_late(&late)];
    operations.extend(acquires);
    operations.extend([Operation::Pass(FENCE_TTL + LEASE), request(&[late], false)]);
    replays(&operations);
    let server = RedisServer::start();
    let mut scripted = Scripted::new(&server, "first");
    scripted.reset();
    let replies: Vec<_> = operations
        .iter()
        .map(|one| scripted.apply(one).reply)
        .collect();
    let is_refused = |reply: &Reply| *reply == Reply::Acquired(Acquired::Outdated);
    let refused: Vec<_> = replies[2..].iter().map(is_refused).collect();
    assert_eq!(
        refused,
        [true, true, true, true, false, false, false, false]
    );
}

/// Returns the release of the first key by an exclusive owner.
fn release(client: u8, fence: u64) -> Operation {
    let release = ReleaseRequest::of(&claim(0, client));
    Operation::Release(ReleaseRequest { fence, ..release }, 0)
}

/// Asks a server for a new fence of the first key. Returns that, or zero.
fn new_fence(scripted: &mut Scripted, owner: OwnerId, fence: u64) -> u64 {
    let key = server::key(0);
    let renewals = [Renewal {
        fence,
        ..Renewal::of(Claim { key, owner })
    }];
    match scripted.renew(&renewals, LEASE)[0] {
        RenewalOutcome::Held { fence, .. } => fence,
        outcome => panic!("{outcome:?}"),
    }
}

/// Acquires the first key. Returns its fence.
fn granted(scripted: &mut Scripted, client: u8) -> u64 {
    let reply = scripted.apply(&request(&[claim(0, client)], false)).reply;
    let Reply::Acquired(Acquired::Granted { fences, .. }) = reply else {
        panic!("{reply:?}");
    };
    fences[0]
}

fn started(server: &RedisServer) -> Scripted {
    let mut scripted = Scripted::new(server, "first");
    scripted.reset();
    scripted
}

/// As the renewals and releases of a quorum do on the servers that have a smaller fence than the others.
#[test]
fn a_renewal_and_a_release_raise_the_fence_above_the_clock() {
    const AHEAD: u64 = 1 << 30;
    let renewal = Renewal {
        fence: AHEAD,
        ..Renewal::of(claim(0, 0))
    };
    let renew = Operation::Renew(vec![renewal], LEASE);
    replays(&[
        request(&[claim(0, 0)], false),
        renew.clone(),
        renew,
        request(&[claim(0, 1)], true),
        release(0, AHEAD),
        release(1, AHEAD),
        release(1, AHEAD),
        request(&[claim(0, 0)], false),
    ]);
}

/// As after a step of the clock back, and the end of the time for which the server keeps a fence.
#[test]
fn a_grant_and_a_hand_off_have_a_fence_above_the_floor() {
    const AHEAD: u64 = 1 << 30;
    replays(&[
        request_above(AHEAD, &[claim(0, 0)], false),
        request(&[claim(0, 2)], true),
        Operation::Pass(LEASE + Duration::from_millis(100)),
        Operation::LoseFence(server::key(0)),
        // Hands the lock off to the waiter.
        request_above(AHEAD, &[claim(0, 1)], true),
        release(2, 0),
        release(1, 0),
        Operation::LoseFence(server::key(0)),
        request_above(1, &[claim(0, 0), claim(1, 0)], false),
    ]);
}

/// As after an eviction, or after the server has forgotten the fence and its clock has stepped back.
#[test]
fn a_release_that_hands_the_lock_off_has_a_fence_above_the_floor() {
    const AHEAD: u64 = 1 << 30;
    let Operation::Release(handed_off, _) = release(0, 0) else {
        unreachable!("it is a release");
    };
    replays(&[
        request_above(AHEAD, &[claim(0, 0)], false),
        request(&[claim(0, 2)], true),
        Operation::LoseFence(server::key(0)),
        Operation::Release(handed_off, AHEAD),
    ]);
}

/// A renewal keeps the fence of a hold that lasts, and sets it again if the server has lost it.
#[test]
fn a_renewal_keeps_the_fence_for_a_lease_and_its_retention() {
    let server = RedisServer::start();
    let mut scripted = started(&server);
    let fence = granted(&mut scripted, 0);
    let name = format!("{}:fence", lock(&server::key(0)));
    let keep = Renewal {
        last_fence: fence,
        keeps_fence: true,
        ..Renewal::of(claim(0, 0))
    };
    for ttl in [1_000, -2] {
        if ttl > 0 {
            let () = scripted.commands.pexpire(&name, ttl).expect("no error");
        } else {
            let () = scripted.commands.del(&name).expect("no error");
        }
        let kept = scripted.renew(std::slice::from_ref(&keep), LEASE);
        assert_eq!(kept, [renewed(1)], "the fence is no new one");
        let left: u64 = scripted.commands.pttl(&name).expect("no error");
        assert!(left > millis(FENCE_TTL + LEASE), "{left} ms");
        let value: u64 = scripted.commands.get(&name).expect("a fence");
        assert_eq!(value, fence);
    }
}

/// The holder cannot tell it from another owner, so its renewal gets no new fence.
#[test]
fn a_waiter_that_is_gone_uses_a_fence_up() {
    let [holder, gone] = [2, 0].map(|client| Claim {
        key: server::key(0),
        owner: owner(client, 2, LockMode::Shared),
    });
    let server = RedisServer::start();
    let mut scripted = started(&server);
    for step in [
        request(&[claim(0, 0)], false),
        Operation::Leave(0),
        request(std::slice::from_ref(&holder), true),
        request(&[gone], true),
    ] {
        scripted.apply(&step);
    }
    let told = scripted.apply(&release(0, 0)).notifications;
    let [Notification::Granted { owner, fence, .. }] = told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(owner, holder.owner);
    assert_eq!(new_fence(&mut scripted, owner, fence + 1), 0);
    assert!(new_fence(&mut scripted, owner, fence + 2) > fence + 1);
}

#[test]
fn a_renewal_sets_no_new_fence_after_other_owners() {
    let server = RedisServer::start();
    let mut scripted = started(&server);
    let first = granted(&mut scripted, 0);
    scripted.apply(&release(0, 0));
    granted(&mut scripted, 1);
    scripted.apply(&release(1, 0));
    scripted.apply(&request(&[claim(0, 0)], false));
    assert_eq!(new_fence(&mut scripted, of(0), first + 1), 0);
    assert!(new_fence(&mut scripted, of(0), first + (1 << 30)) > first);
}

#[test]
fn a_lock_that_ended_goes_to_its_waiter_when_another_of_several_is_taken() {
    replays(&[
        request(&[claim(0, 0)], false),
        request(&[claim(0, 2)], true),
        Operation::Pass(Duration::from_millis(1_500)),
        request(&[claim(1, 0)], false),
        Operation::Pass(Duration::from_millis(700)),
        request(&[claim(0, 1), claim(1, 1)], true),
    ]);
}

#[test]
fn a_holder_whose_fence_was_lost_gets_a_new_one() {
    let server = RedisServer::start();
    let mut scripted = started(&server);
    let first = granted(&mut scripted, 0);
    scripted.apply(&Operation::LoseFence(server::key(0)));
    let second = granted(&mut scripted, 0);
    assert!(second > first);
    assert_eq!(granted(&mut scripted, 0), second);
}
