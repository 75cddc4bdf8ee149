//! Different arguments never share a key.

use std::collections::HashMap;

use rlock_core::{LockError, current, distributed_lock};

use super::held::client;

type Rendered = Result<String, LockError>;

fn inside() -> String {
    current().expect("inside of a lock").key().to_owned()
}

#[distributed_lock(key = "k:<a>:<b>")]
async fn colon(a: &str, b: &str) -> Rendered {
    let _ = (a, b);
    Ok(inside())
}

#[distributed_lock(key = "x<a>x:y<b>y")]
async fn padded(a: &str, b: &str) -> Rendered {
    let _ = (a, b);
    Ok(inside())
}

#[distributed_lock(key = "{k<a>}<b>")]
async fn tag(a: &str, b: &str) -> Rendered {
    let _ = (a, b);
    Ok(inside())
}

#[distributed_lock(key = "<a>{k<b>}:%3A")]
async fn tag_behind(a: &str, b: &str) -> Rendered {
    let _ = (a, b);
    Ok(inside())
}

#[distributed_lock(key = "<a>-<<>>:-<b>%")]
async fn brackets(a: &str, b: &str) -> Rendered {
    let _ = (a, b);
    Ok(inside())
}

/// Parts of values: everything that is special in a template, an escaped value, a cluster key or a
/// protocol, and ordinary text.
const PIECES: [&str; 24] = [
    "", ":", "::", "%", "%3A", "%25", "%2", "{", "}", "{}", "<", ">", "<b>", "-", "x", "y", "k",
    "\r\n", "\0", "\u{85}", "é", "1", "None", "lock:",
];

fn value(random: &mut fastrand::Rng) -> String {
    let pieces = random.usize(..4);
    (0..pieces)
        .map(|_| PIECES[random.usize(..PIECES.len())])
        .collect()
}

async fn assert_injective<'a, F>(
    name: &str,
    pairs: &'a [(String, String)],
    render: impl Fn(&'a str, &'a str) -> F,
) where
    F: Future<Output = Rendered>,
{
    let mut keys: HashMap<String, (&str, &str)> = HashMap::new();
    for (a, b) in pairs {
        let key = render(a, b).await.expect("every value makes a key");
        let pair = (a.as_str(), b.as_str());
        let other = *keys.entry(key.clone()).or_insert(pair);
        assert_eq!(other, pair, "{name} renders both as {key:?}");
    }
}

#[tokio::test]
async fn different_arguments_never_share_a_key() {
    client();
    let seed = 0x5EED;
    let mut random = fastrand::Rng::with_seed(seed);
    let pairs: Vec<(String, String)> = (0..1500)
        .map(|_| (value(&mut random), value(&mut random)))
        .collect();
    assert_injective("colon", &pairs, colon).await;
    assert_injective("padded", &pairs, padded).await;
    assert_injective("tag", &pairs, tag).await;
    assert_injective("tag_behind", &pairs, tag_behind).await;
    assert_injective("brackets", &pairs, brackets).await;
}
