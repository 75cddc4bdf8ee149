//! Compares the replies of the Lua scripts on a real server with those of the model.

mod batch;

use std::{slice::from_ref, time::Instant};

use redis::{Commands, Connection, InfoDict, RedisError, Script, Value};
use rlock_model::{
    differential::{
        CLIENTS, Design, KEYS, KeyView, Observed, Operation, Reply, Served, Subject, replay, run,
    },
    server::TOO_LARGE,
    words::{
        Acquire, Acquired, BLOCK, Claim, Entry, Extend, Extended, HandOff, History, Holder, Key,
        Known, Millis, Next, Notification, Owner, Release, Released, Renewal, Renewed, Token,
    },
};
use rlock_testkit::{RedisServer, Scripts};

/// The prefix of channels.
const CHANNELS: &str = "lock:client:";
/// The least token: a smaller fence counts as none.
const LEAST_TOKEN: u64 = 1_000_000_000_000;
/// How long the server keeps a token.
const FENCE_TTL: Millis = 86_400_000;

struct Scripted {
    scripts: Scripts,
    /// Advances the time on the server.
    time: Script,
    replication_id: String,
    history: History,
    commands: Connection,
    listeners: Vec<Option<Connection>>,
    client: redis::Client,
    /// The number of checks that the listeners have received everything.
    rounds: u64,
    reset_at: Instant,
}

impl Scripted {
    fn new(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).expect("a URL");
        let mut commands = client.get_connection().expect("the server runs");
        let info = redis::cmd("INFO").arg("replication").query(&mut commands);
        let replication_id = info.map(|info: InfoDict| info.get("master_replid"));
        Self {
            scripts: Scripts::new(),
            time: Script::new(include_str!("differential/time.lua")),
            replication_id: replication_id.expect("no error").expect("an id"),
            history: 0,
            commands,
            listeners: (0..CLIENTS).map(|_| None).collect(),
            client,
            rounds: 0,
            reset_at: Instant::now(),
        }
    }

    /// Returns the least token of a client that knows this history of the server, or has written to it recently.
    fn least_token(&self, known: Known) -> String {
        let least = LEAST_TOKEN.max(known.least);
        match known.history {
            None => least.to_string(),
            Some(known) if known == self.history => format!("{least}:{}", self.replication_id),
            Some(_) => format!("{least}:{}", "f".repeat(40)),
        }
    }

    /// Returns the server's time (µs).
    fn now(&mut self) -> Token {
        let time = redis::cmd("TIME").query(&mut self.commands);
        let (seconds, micros): (Token, Token) = time.expect("no error");
        seconds * 1_000_000 + micros
    }

    /// Returns whether the error reports the replication id, and a time.
    fn is_promoted(&self, error: &RedisError) -> bool {
        let report = error.detail().filter(|_| error.code() == Some("PROMOTED"));
        let Some((time, id)) = report.and_then(|report| report.split_once(' ')) else {
            return false;
        };
        time.parse::<Token>().expect("a time") > LEAST_TOKEN && id == self.replication_id
    }

    fn acquire(&mut self, ask: &Acquire) -> Acquired {
        let mut call = self.scripts.acquire.prepare_invoke();
        for claim in &ask.claims {
            call.key(lock(claim.key));
        }
        call.arg(ask.lease)
            .arg(ask.count)
            .arg(FENCE_TTL + ask.lease);
        call.arg(u8::from(ask.waits)).arg(CHANNELS);
        call.arg(self.least_token(ask.known));
        for claim in &ask.claims {
            call.arg(name(claim.owner));
        }
        let reply: Vec<i64> = match call.invoke(&mut self.commands) {
            Err(error) if error.to_string().contains("is no fencing token") => {
                return Acquired::Refused;
            }
            Err(error) if self.is_promoted(&error) => return Acquired::Promoted,
            reply => reply.expect("no error"),
        };
        let unsigned = |number: &i64| u64::try_from(*number).expect("not negative");
        match reply.as_slice() {
            [is_wanted @ (1 | 2), tokens @ ..] => Acquired::Granted {
                tokens: tokens.iter().map(unsigned).collect(),
                others_wait: *is_wanted == 2,
            },
            [0, claim, ttl, queued, fences @ ..] => Acquired::Held {
                claim: usize::try_from(*claim).expect("not negative"),
                ttl: unsigned(ttl),
                queued: *queued > 0,
                first: *queued == 2,
                fences: fences.iter().map(unsigned).collect(),
            },
            [-1] => Acquired::NotHeld,
            reply => panic!("{reply:?} to {ask:?}"),
        }
    }

    fn release(&mut self, ask: &Release, token: Token) -> Released {
        let mut call = self.scripts.release.prepare_invoke();
        let lease = ask.next.map_or(0, |next| next.lease);
        call.key(lock(ask.key))
            .arg(name(ask.owner))
            .arg(ask.count)
            .arg(ask.at_least)
            .arg(token);
        call.arg(FENCE_TTL + lease).arg(CHANNELS);
        call.arg(self.least_token(ask.known));
        if let Some(next) = ask.next {
            call.arg(name(next.owner)).arg(next.lease);
        }
        match call.invoke(&mut self.commands).expect("no error") {
            Value::Int(0) => Released::NotHeld,
            Value::Int(1) => Released::Done(HandOff::Unknown),
            Value::Int(2) => Released::MovedOn,
            Value::BulkString(empty) if empty.is_empty() => Released::Done(HandOff::Queued),
            Value::Int(token) if ask.next.is_some() => {
                let token = u64::try_from(token).expect("a token");
                Released::Done(HandOff::Granted(token))
            }
            reply => panic!("{reply:?} to {ask:?}"),
        }
    }

    fn renew(&mut self, Renewal { claims, lease }: &Renewal) -> Vec<Renewed> {
        let mut call = self.scripts.renew.prepare_invoke();
        call.arg(*lease).arg(FENCE_TTL + lease);
        for claim in claims {
            call.key(lock(claim.key)).arg(name(claim.owner));
        }
        match call.invoke(&mut self.commands).expect("no error") {
            Value::Int(1) => vec![renewed(1); claims.len()],
            held => {
                let held: Vec<u8> = redis::from_redis_value(held).expect("one for each");
                held.into_iter().map(renewed).collect()
            }
        }
    }

    fn extend(&mut self, ask: &Extend) -> Extended {
        let mut call = self.scripts.extend.prepare_invoke();
        call.key(lock(ask.key))
            .arg(name(ask.owner))
            .arg(ask.tokens)
            .arg(self.least_token(ask.known));
        let reply: Vec<Token> = match call.invoke(&mut self.commands) {
            Err(error) if error.to_string().contains("is no fencing token") => {
                return Extended::Refused;
            }
            Err(error) if self.is_promoted(&error) => return Extended::Promoted,
            reply => reply.expect("no error"),
        };
        match *reply.as_slice() {
            [] => Extended::NotHeld,
            [fence, tokens] => Extended::More { fence, tokens },
            _ => panic!("{reply:?} to {ask:?}"),
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

fn renewed(held: u8) -> Renewed {
    Renewed {
        held: held > 0,
        wanted: held == 2,
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
    format!("{:036}:{}", owner.client, owner.sequence)
}

fn owner(name: &str) -> Owner {
    let (client, sequence) = name.split_once(':').expect("an owner");
    Owner {
        client: client.parse().expect("a number"),
        sequence: sequence.parse().expect("a number"),
    }
}

fn entry_of(reply: Value) -> Option<Entry> {
    if matches!(&reply, Value::Array(items) if items.is_empty()) {
        return None;
    }
    let (holder, count, ttl, token, _queue): (String, u8, Millis, String, Vec<String>) =
        redis::from_redis_value(reply).expect("an entry");
    Some(Entry {
        holder: if holder == "kept" {
            Holder::Kept
        } else {
            Holder::Owner(owner(&holder))
        },
        count,
        ttl,
        token: if token.is_empty() {
            0
        } else {
            let token = token.parse().expect("a number");
            // An invalid token is shown unchanged.
            if token < TOO_LARGE { token } else { 0 }
        },
    })
}

fn notification(text: &str) -> Notification {
    let words: Vec<&str> = text.splitn(4, ' ').collect();
    let [name, token, ms, lock] = words[..] else {
        panic!("`{text}` to a waiter")
    };
    let key = lock
        .strip_prefix("lock:{")
        .and_then(|key| key.strip_suffix('}'));
    let key = key.expect("a lock").parse().expect("one of ours");
    let (owner, ms) = (owner(name), ms.parse().expect("a number"));
    if token == "wanted" {
        return Notification::Wanted { key, owner };
    }
    if token.is_empty() {
        Notification::Retry {
            key,
            owner,
            after: ms,
        }
    } else {
        let numbers: Vec<Token> = token
            .split('/')
            .map(|number| number.parse().expect("a number"))
            .collect();
        let [token, size, others_wait] = numbers[..] else {
            panic!("`{text}` to a waiter")
        };
        assert_eq!(size, BLOCK);
        Notification::Granted {
            key,
            owner,
            token,
            ttl: ms,
            others_wait: others_wait == 1,
        }
    }
}

impl Subject for Scripted {
    fn reset(&mut self) {
        self.reset_at = Instant::now();
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

    fn apply(&mut self, operation: &Operation, token: Token) -> Observed {
        let mut reply = Reply::None;
        match operation {
            Operation::Acquire(ask) => reply = Reply::Acquired(self.acquire(ask)),
            Operation::Release(ask) => reply = Reply::Released(self.release(ask, token)),
            Operation::Renew(ask) => reply = Reply::Renewed(self.renew(ask)),
            Operation::Extend(ask) => reply = Reply::Extended(self.extend(ask)),
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
            Operation::LoseToken(key) => {
                let fence = format!("{}:fence", lock(*key));
                self.commands.del::<_, ()>(fence).expect("no error");
            }
            Operation::MissGrant(key) => {
                self.history += 1;
                let fence = format!("{}:fence", lock(*key));
                let _: i64 = self.commands.decr(fence, BLOCK + 1).expect("no error");
            }
            Operation::InvalidateToken(key, instead) => {
                let fence = format!("{}:fence", lock(*key));
                self.commands
                    .set_ex::<_, _, ()>(fence, instead, 1_000_000)
                    .expect("no error");
            }
            Operation::Batch(_) => unreachable!("served one by one or by another script"),
        }
        self.seen(reply)
    }

    fn batch(&mut self, requests: &[Operation]) -> Served {
        let replies = self.serve(requests);
        Served {
            replies,
            seen: self.seen(Reply::None),
        }
    }
}

#[test]
fn the_scripts_reply_as_the_model_does() {
    let server = RedisServer::start();
    let tally = run(Scripted::new(&server), Design::REDIS);
    println!("{tally:?}");
    assert!(tally.inconclusive * 10 <= tally.sequences, "{tally:?}");
    assert!(
        tally.granted > 100 && tally.held > 100 && tally.notifications > 20 && tally.batch > 50,
        "{tally:?}"
    );
}

const ONE: Owner = Owner {
    client: 0,
    sequence: 0,
};
const OTHER: Owner = Owner {
    client: 1,
    sequence: 0,
};

fn claim(key: Key, owner: Owner) -> Claim {
    Claim { key, owner }
}

fn request(claims: &[Claim], waits: bool) -> Operation {
    Operation::Acquire(Acquire {
        claims: claims.to_vec(),
        lease: 2_000,
        count: 1,
        waits,
        known: known(Some(0)),
    })
}

fn replays(operations: &[Operation]) {
    let server = RedisServer::start();
    replay(&mut Scripted::new(&server), Design::REDIS, operations);
}

#[test]
fn a_token_that_was_lost_before_a_release_is_not_counted_from_the_release() {
    let waiter = Next {
        owner: Owner { sequence: 1, ..ONE },
        lease: 2_000,
    };
    for (at_least, next) in [(0, None), (3_000, None), (0, Some(waiter))] {
        let release = Release {
            at_least,
            ..release(ONE, next, None)
        };
        replays(&[
            request(&[claim(0, ONE)], false),
            Operation::LoseToken(0),
            Operation::Release(release),
            Operation::Pass(21_000),
            request(&[claim(0, OTHER)], false),
        ]);
    }
}

/// The request of the next caller overtook the release that names it.
#[test]
fn a_release_hands_the_lock_to_a_next_caller_that_is_first_in_the_queue_once() {
    let owner = Owner { sequence: 1, ..ONE };
    for lease in [100, 2_000] {
        replays(&[
            request(&[claim(0, ONE)], false),
            request(&[claim(0, owner)], true),
            Operation::Release(release(ONE, Some(Next { owner, lease }), None)),
            request(&[claim(0, OTHER)], true),
            Operation::Release(release(owner, None, None)),
        ]);
    }
}

fn known(history: Option<History>) -> Known {
    Known { least: 0, history }
}

fn release(owner: Owner, next: Option<Next>, history: Option<History>) -> Release {
    Release {
        key: 0,
        owner,
        token: 0,
        count: 0,
        at_least: 0,
        next,
        known: known(history),
    }
}

#[test]
fn tokens_restart_on_a_server_that_missed_a_grant() {
    let began = [
        request(&[claim(0, ONE)], false),
        Operation::Release(release(ONE, None, None)),
        request(&[claim(0, OTHER)], false),
        Operation::Release(release(OTHER, None, None)),
        Operation::MissGrant(0),
    ];
    let again = request(&[claim(0, ONE)], false);
    let other = request(&[claim(1, ONE)], false);
    replays(&[&began[..], from_ref(&again)].concat());
    replays(&[&began[..], &[Operation::Batch(vec![again, other])]].concat());
}

#[test]
fn a_hand_over_and_an_extension_need_the_same_history() {
    let server = RedisServer::start();
    let mut scripted = Scripted::new(&server);
    let next = Next {
        owner: Owner { sequence: 1, ..ONE },
        lease: 2_000,
    };
    let (same, another) = (Some(0), Some(1));
    for (history, restarts) in [(None, false), (same, false), (another, true)] {
        scripted.apply(&request(&[claim(0, ONE)], false), 0);
        let extension = Extend {
            key: 0,
            owner: ONE,
            tokens: 2,
            known: known(history),
        };
        let extended = scripted.extend(&extension);
        assert_eq!(extended == Extended::Promoted, restarts, "{extended:?}");
        let now = scripted.now();
        let released = scripted.release(&release(ONE, Some(next), history), 0);
        let Released::Done(HandOff::Granted(token)) = released else {
            panic!("{released:?}");
        };
        assert_eq!(token > now, restarts, "{history:?}: {token} at {now}");
        scripted.release(&release(next.owner, None, None), 0);
    }
}

/// A client that learned of a promotion sends a larger least token for all keys.
#[test]
fn tokens_are_never_less_than_the_client_demands() {
    let server = RedisServer::start();
    let mut scripted = Scripted::new(&server);
    for key in 0..2 {
        scripted.apply(&request(&[claim(key, ONE)], false), 0);
        let extension = |scripted: &mut Scripted, least| {
            let extended = scripted.extend(&Extend {
                key,
                owner: ONE,
                tokens: 2,
                known: Known {
                    least,
                    history: None,
                },
            });
            matches!(extended, Extended::More { tokens: 1.., .. })
        };
        assert!(extension(&mut scripted, 0));
        let least = scripted.now();
        assert!(!extension(&mut scripted, least), "of an old fence");
        let release = Release {
            key,
            ..release(ONE, None, None)
        };
        scripted.release(&release, 0);
        let granted = scripted.acquire(&Acquire {
            claims: vec![claim(key, ONE)],
            lease: 2_000,
            count: 1,
            waits: false,
            known: Known {
                least,
                history: None,
            },
        });
        let Acquired::Granted { tokens, .. } = granted else {
            panic!("{granted:?}");
        };
        assert!(tokens[0] >= least, "{tokens:?} from {least}");
        assert!(extension(&mut scripted, least));
    }
}

#[test]
fn a_lock_that_ended_goes_to_its_waiter_when_another_of_several_is_taken() {
    let waiter = Owner {
        client: 2,
        sequence: 0,
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
fn a_lost_token_is_reset_even_if_another_lock_is_refused() {
    replays(&[
        request(&[claim(0, ONE)], false),
        Operation::InvalidateToken(1, TOO_LARGE + 1),
        Operation::LoseToken(0),
        request(&[claim(0, ONE), claim(1, OTHER)], false),
        request(&[claim(0, ONE)], false),
    ]);
}

#[test]
fn an_invalid_token_is_refused_and_the_lock_is_released() {
    let release = |owner, next| Operation::Release(release(owner, next, None));
    let waiter = Owner { sequence: 1, ..ONE };
    let next = Next {
        owner: waiter,
        lease: 2_000,
    };
    for next in [None, Some(next)] {
        replays(&[
            request(&[claim(0, ONE)], false),
            Operation::InvalidateToken(0, TOO_LARGE + 1),
            request(&[claim(0, OTHER)], true),
            request(&[claim(0, ONE)], false),
            release(ONE, next),
            release(ONE, next),
            request(&[claim(0, OTHER)], true),
            Operation::Batch(vec![
                request(&[claim(0, OTHER)], false),
                request(&[claim(1, OTHER)], false),
            ]),
            Operation::LoseToken(0),
            request(&[claim(0, OTHER)], true),
        ]);
    }
}
