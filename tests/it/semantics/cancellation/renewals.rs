//! Finds renewals after a release in the commands of clients.

use rlock_testkit::ClientCommand;

/// Returns the first renewal of a key after a client has used the key after next. Keys are numbered
/// in the order of their use.
pub(crate) fn late(seen: &[ClientCommand]) -> Option<&ClientCommand> {
    let mut latest = 0;
    for command in seen.iter().filter(|command| command.is("EVALSHA")) {
        for number in keys(command).iter().filter_map(|key| number(key)) {
            if renews(command) && number + 1 < latest {
                return Some(command);
            }
            latest = latest.max(number);
        }
    }
    None
}

pub(crate) fn keys(command: &ClientCommand) -> &[String] {
    let count: usize = command.words[2].parse().expect("the number of keys");
    &command.words[3..3 + count]
}

/// `lock:{k-7}` and `lock:{k-7-too}` → 7
fn number(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("lock:{k-")?.strip_suffix('}')?;
    rest.split('-').next()?.parse().ok()
}

/// Returns whether this is a call of the renewal script, the only one whose first argument is a
/// day.
pub(crate) fn renews(command: &ClientCommand) -> bool {
    const A_DAY: &str = "86400000";
    let first = command.words.get(3 + keys(command).len());
    first.is_some_and(|first| first == A_DAY)
}

#[test]
fn a_renewal_is_late_when_its_key_is_done_with() {
    let command = |key: u32, first: &str| ClientCommand {
        client: "127.0.0.1:7".to_owned(),
        words: ["EVALSHA", "sha", "1", &format!("lock:{{k-{key}}}"), first]
            .map(str::to_owned)
            .to_vec(),
    };
    let log = [
        command(1, "20000"),
        command(2, "20000"),
        command(1, "86400000"),
        command(3, "20000"),
        command(1, "86400000"),
    ];
    assert_eq!(late(&log[..4]), None);
    assert_eq!(late(&log), Some(&log[4]));
}
