//! States what holds for every input from outside: replies and messages of a server, keys, URLs. The tests check them
//! with random input, and the targets in `fuzz/` with generated input.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use redis::{PushInfo, Value};
use rlock_proto::{
    escape_control::breaks_the_line,
    key::Key,
    lease::Time,
    store::{Acquired, GRACE, Notification},
};
use uuid::Uuid;

use super::{
    commands::Commands,
    connection::Inbox,
    errors::classify,
    replies::{read_acquired, read_applied, read_entry, read_renewed},
};
use crate::store::{endpoint::Endpoint, keyspace::Keyspace, options::StoreOptions};

impl StoreOptions {
    pub(in crate::store) fn for_tests(client: Uuid) -> Self {
        const TIMEOUT: Duration = Duration::from_millis(1);
        Self {
            client,
            connect_timeout: TIMEOUT,
            response_timeout: TIMEOUT,
            ..Self::default()
        }
    }
}

const CLIENT: Uuid = Uuid::from_u128(7);

fn names_of_locks() -> Keyspace {
    Keyspace::new("lock:".to_owned())
}

/// Writes an event as `waiters.lua` does.
fn written(keyspace: &Keyspace, event: &Notification) -> String {
    match event {
        Notification::Granted {
            key,
            owner,
            fence,
            ttl,
            wanted,
        } => format!(
            "{owner} {fence}/{} {} {}",
            u8::from(*wanted),
            ttl.as_millis(),
            keyspace.lock(key)
        ),
        Notification::Wanted { key, owner } => format!("{owner} wanted 0 {}", keyspace.lock(key)),
        Notification::Retry { key, owner, after } => {
            format!("{owner}  {} {}", after.as_millis(), keyspace.lock(key))
        }
        other => panic!("{other:?} is not a message"),
    }
}

fn check_event(keyspace: &Keyspace, event: &Notification) {
    match event {
        Notification::Granted { owner, .. }
        | Notification::Wanted { owner, .. }
        | Notification::Retry { owner, .. } => {
            if let Notification::Granted { ttl, .. } = event {
                assert!(*ttl <= GRACE);
            }
            assert_eq!(owner.client(), CLIENT, "the message is for another client");
            let again = keyspace.read_message(CLIENT, written(keyspace, event).as_bytes());
            assert_eq!(
                again.as_ref(),
                Some(event),
                "written again it says the same"
            );
        }
        Notification::Changed(key) => {
            let name = keyspace.lock(key);
            assert_eq!(keyspace.key(name.as_bytes()).as_ref(), Some(key));
        }
        Notification::PermitsDiffer { .. }
        | Notification::Message(_)
        | Notification::SomeChanged(_)
        | Notification::Disconnected => {}
    }
}

/// Checks that a message on the client's channel is ignored, unless it is valid and for one of its
/// owners.
pub(crate) fn message(message: &[u8]) {
    let keyspace = names_of_locks();
    let owner = format!("{CLIENT}:3 ");
    for beginning in ["", &owner, &format!("{owner}4711/1 1000 ")] {
        let message = [beginning.as_bytes(), message].concat();
        if let Some(event) = keyspace.read_message(CLIENT, &message) {
            check_event(&keyspace, &event);
        }
    }
}

/// Checks that each reply of a server is valid for its request, or an error.
pub(crate) fn reply(reply: &[u8]) {
    let Ok(value) = redis::parse_redis_value(reply) else {
        return;
    };
    if let Value::Push { kind, data } = value {
        push(PushInfo { kind, data });
        return;
    }
    let value = match value.extract_error() {
        Ok(value) => value,
        Err(error) => {
            let _ = classify(error).to_string();
            return;
        }
    };
    let sent_at = Time::from_nanos(1);
    for claims in 1..4 {
        match read_acquired(value.clone(), claims, sent_at, true) {
            Ok(Acquired::Granted { fences, .. }) => assert_eq!(fences.len(), claims),
            Ok(Acquired::Taken {
                claim, past_fences, ..
            }) => {
                assert!(claim < claims);
                assert_eq!(past_fences.len(), claims);
            }
            Ok(Acquired::Outdated) | Err(_) => {}
        }
        if let Ok(renewed) = read_renewed(value.clone(), claims, sent_at) {
            assert_eq!(renewed.kept.len(), claims);
        }
    }
    let _ = read_applied(&value);
    let _ = read_entry(value);
}

fn push(push: PushInfo) {
    let options = StoreOptions::for_tests(CLIENT);
    let inbox = Inbox {
        listener: Arc::new(|event| check_event(&names_of_locks(), &event)),
        commands: Arc::new(Commands::new(names_of_locks(), &options)),
        client: CLIENT,
    };
    inbox.on_push(push);
}

/// Checks that different keys share no name on the server, and that all names of a key have its hash tag.
pub(crate) fn names(one: &str, other: &str) {
    let keyspace = names_of_locks();
    let all = |key: &Key| {
        let lock = keyspace.lock(key);
        assert_eq!(keyspace.key(lock.as_bytes()).as_ref(), Some(key));
        let all = [
            format!("{lock}:fence"),
            format!("{lock}:queue"),
            lock.clone(),
        ];
        let tag = hash_tag(key.as_str()).unwrap_or(key.as_str());
        for name in &all {
            assert_eq!(hash_tag(name), Some(tag), "{name}");
            assert!(*name == lock || keyspace.key(name.as_bytes()).is_none());
        }
        all
    };
    let (Ok(one), Ok(other)) = (Key::parse(one), Key::parse(other)) else {
        return;
    };
    let (of_one, of_other) = (all(&one), all(&other));
    if one != other {
        assert!(of_one.iter().all(|name| !of_other.contains(name)));
    }
}

/// Returns the part of a name that determines its slot on a Redis Cluster.
fn hash_tag(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// Checks that a URL is an address or an error, and that both stay on their line.
pub(crate) fn url(url: &str) {
    let shown = match Endpoint::parse(url) {
        Ok(Endpoint::Server(server)) => server.to_string(),
        Ok(_) => return,
        Err(error) => {
            let shown = error.to_string();
            assert!(shown.contains("`url`"));
            shown
        }
    };
    assert!(!shown.contains(breaks_the_line), "{shown:?}");
}
