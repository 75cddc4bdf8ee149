//! `key!`: the keys of the attribute, for code without it.

use std::{collections::BTreeSet, time::Duration};

use rlock_core::{LockClient, LockError, current, distributed_lock, key};

struct Order {
    tenant: String,
    lines: Vec<(String, u32)>,
}

impl Order {
    fn first(&self) -> &str {
        &self.lines[0].0
    }
}

/// Returns the keys of a template by the attribute, and by `key!`.
macro_rules! by_both {
    ($client:ident, $template:literal, $($value:ident: $type:ty),+) => {{
        #[distributed_lock(key = $template, client = $client)]
        fn by_attribute($client: &LockClient, $($value: $type),+) -> Result<Vec<String>, LockError> {
            let hold = current().expect("inside a lock");
            Ok(hold.keys().map(str::to_owned).collect())
        }
        let by_attribute = by_attribute($client, $($value),+).expect("free");
        (by_attribute, key!($template))
    }};
}

/// Returns a short text of the characters that mean something in keys, templates and escapes.
fn hostile(random: &mut fastrand::Rng) -> String {
    let characters: Vec<char> = "%:{}<>/3A~ü \0\n\u{85}\u{202e}".chars().collect();
    let length = random.usize(0..8);
    (0..length)
        .map(|_| *random.choice(&characters).expect("some"))
        .collect()
}

#[test]
fn the_key_is_that_of_the_attribute_for_the_same_template_and_values() {
    let (client, random) = (&LockClient::in_memory(), &mut fastrand::Rng::with_seed(7));
    for _ in 0..300 {
        let (name, other) = (&*hostile(random), &*hostile(random));
        let id = random.i64(..);
        let lines = (0..random.u32(1..4)).map(|line| (hostile(random), line));
        let order = &Order {
            lines: lines.collect(),
            tenant: hostile(random),
        };
        let (attribute, key) = by_both!(client, "order:<id>", id: i64);
        assert_eq!(attribute, [key]);
        let (attribute, key) =
            by_both!(client, "<<<name>:{t:<other>}:<id:#010x>>>", name: &str, other: &str, id: i64);
        assert_eq!(attribute, [key]);
        let (attribute, key) = by_both!(
            client, "tenant:<order.tenant>:<order.first().len()>:<order.lines:?>", order: &Order
        );
        assert_eq!(attribute, [key]);
        let (attribute, keys) = by_both!(client, "<name>:<order.lines[].0>:<order.lines[].1>", name: &str, order: &Order);
        assert_eq!(attribute, keys);
    }
}

#[test]
fn different_values_make_different_keys() {
    let random = &mut fastrand::Rng::with_seed(11);
    let (mut values, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..2_000 {
        let (one, other) = (hostile(random), hostile(random));
        keys.insert(key!("<one>:<other>"));
        values.insert((one, other));
    }
    assert_eq!(keys.len(), values.len());
}

#[distributed_lock(key = "order:<order.tenant>:<id>", client = client, wait = "0s", if_taken = Ok(false))]
fn pay(client: &LockClient, order: &Order, id: u32) -> Result<bool, LockError> {
    Ok(true)
}

#[test]
fn a_lock_of_the_key_keeps_the_annotated_function_out() {
    let client = LockClient::in_memory();
    let order = Order {
        tenant: "a:{b}%3A".to_owned(),
        lines: Vec::new(),
    };
    let id = 42;
    let lock = client.lock(key!("order:<order.tenant>:<id>"));
    let lock = lock.wait(Duration::ZERO);
    let guard = lock.acquire_blocking().expect("free");
    assert!(!pay(&client, &order, id).expect("a reply"), "it is taken");
    assert!(pay(&client, &order, 43).expect("a reply"), "another key");
    guard.release_blocking().expect("held");
    assert!(pay(&client, &order, id).expect("a reply"));
}

const REGION: &str = "eu:west";

struct Shop {
    name: &'static str,
}

impl Shop {
    const LIMIT: u8 = 3;

    fn key(&self) -> String {
        key!("<self.name>:<Self::LIMIT>:<REGION>")
    }
}

#[test]
fn key_values_may_be_variables_of_the_scope() {
    assert_eq!(Shop { name: "n" }.key(), "n:3:eu%3Awest");
    let r#type = 'x';
    let keys = [1, 2].map(|id| key!("<r#type>:<id>"));
    assert_eq!(keys, ["x:1", "x:2"]);
    assert_eq!(
        renamed::key!("<r#type>"),
        "x",
        "by another name of the crate"
    );
    let none: [u8; 0] = [];
    assert!(key!("account:<none[]>").is_empty());
}
