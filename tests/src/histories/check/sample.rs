//! Sample histories as text, to test that violations are found.
//!
//! A case has a title behind `#`, records that end with `;` or the line, and what is found in the records so far, behind `=>`.
//! Times are in milliseconds, and all records are about one key.
//!
//! ```text
//! hold <owner> <token> <call> <grant> <end of its validity>      a lease lasts 100 ms
//!   … early | runs | shares | permits <n> [takes <n>] | keeps <min_hold> | looked <at> <end> | downgraded <at> | left <at>
//! entered <owner> <token>   … at <time> | shares | permits <n>
//! wrote, read <owner> <token> <at>   … rejected
//! released <owner>;  gave-up <client> <lease> <at>;  refused;  killed, closed <client> <at>;  quorum
//! flushed, masters, paused, replaced <start> <end>   … on <server> | named <time>;  deleted <key> <at>
//! seen <owner> <first> <last>   … on <server>;  left-over <what>
//! => nothing, or these properties only, or `also` one of them   … overlaps <n> <longest> | others <n>
//! ```

use super::{Findings, Property, check};
use crate::histories::{
    history::History,
    mode::Mode,
    options::Kind,
    record::{
        Access, AccessKind, Fault, FaultKind, Operation, Outcome, Record, Run, Verb, client_of,
    },
};

const MS: u64 = 1_000_000;
const KEY: &str = "k";
const LEASE: u64 = 100;

/// Checks every case of a text.
#[track_caller]
pub(super) fn check_cases(text: &str) {
    let (mut title, mut records, mut checked) = ("", Vec::new(), true);
    let mut wrong = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(next) = line.strip_prefix('#') {
            assert!(checked, "{title}: nothing is expected");
            (title, checked) = (next.trim(), false);
            records.clear();
        } else if let Some(expected) = line.strip_prefix("=>") {
            checked = true;
            if let Err(found) = agrees(&findings(&records), expected) {
                wrong.push(format!("{title}: not{expected}, but {found}"));
            }
        } else {
            for record in line.split(';') {
                add(&mut records, &mut record.split_whitespace());
            }
        }
    }
    assert!(checked, "{title}: nothing is expected");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn findings(records: &[Record]) -> Findings {
    let mut history = History::default();
    for record in records {
        // Each record goes through its file format.
        let line = serde_json::to_string(record).expect("plain data");
        history.add(serde_json::from_str(&line).expect("what was written"));
    }
    check(&history)
}

/// Compares what was found with what is expected, or returns it.
fn agrees(findings: &Findings, expected: &str) -> Result<(), String> {
    let violations = findings.violations.iter();
    let mut found: Vec<Property> = violations.map(|violation| violation.property).collect();
    found.dedup();
    let (mut words, mut exactly) = (expected.split_whitespace(), Vec::new());
    let (mut is_also, mut agree) = (false, true);
    while let Some(word) = words.next() {
        match word {
            "nothing" => {}
            "also" => is_also = true,
            "overlaps" => {
                agree &= findings.overlaps_by_nature == number::<u64>(&mut words);
                agree &= findings.longest_by_nature_ms == number::<u64>(&mut words);
            }
            "others" => agree &= findings.others_by_nature == number::<u64>(&mut words),
            name => {
                let mut all = Property::ALL.into_iter();
                let property = all.find(|property| format!("{property:?}") == name);
                exactly.push(property.expect(name));
            }
        }
    }
    agree &= if is_also {
        exactly.iter().all(|property| found.contains(property))
    } else {
        exactly == found
    };
    if agree {
        return Ok(());
    }
    Err(format!("{findings:#?}"))
}

type Words<'a> = std::str::SplitWhitespace<'a>;

fn number<T: std::str::FromStr>(words: &mut Words<'_>) -> T {
    let word = words.next().expect("a number follows");
    word.parse().ok().expect(word)
}

fn time(words: &mut Words<'_>) -> u64 {
    number::<u64>(words) * MS
}

fn text(words: &mut Words<'_>) -> String {
    words.next().expect("a word follows").to_owned()
}

fn process_of(owner: &str) -> u32 {
    u32::from(client_of(owner).as_bytes()[0])
}

fn operation(verb: Verb, outcome: Outcome, owner: &str, token: u64) -> Operation {
    Operation {
        process: process_of(owner),
        task: 0,
        verb,
        key: KEY.to_owned(),
        mode: Mode::Exclusive,
        owner: Some(owner.to_owned()),
        count: Some(1),
        token: Some(token),
        lease: LEASE * MS,
        min_hold: None,
        retain: None,
        invoke: 0,
        returned: 0,
        valid_until: None,
        outcome,
        error: None,
    }
}

/// Adds one record with its details.
fn add(records: &mut Vec<Record>, words: &mut Words<'_>) {
    let Some(verb) = words.next() else { return };
    let key = KEY.to_owned();
    let record = match verb {
        "hold" => {
            let (owner, token) = (text(words), number(words));
            records.push(Record::Started {
                process: process_of(&owner),
                client: client_of(&owner).to_owned(),
                at: 0,
            });
            Record::Operation(Operation {
                invoke: time(words),
                returned: time(words),
                valid_until: Some(time(words)),
                ..operation(Verb::Acquire, Outcome::Granted, &owner, token)
            })
        }
        "entered" => {
            let (owner, token) = (text(words), number(words));
            Record::Operation(operation(Verb::Enter, Outcome::Granted, &owner, token))
        }
        "released" => {
            let owner = text(words);
            Record::Operation(operation(Verb::Release, Outcome::Released, &owner, 0))
        }
        "gave-up" => {
            let client = text(words);
            Record::Operation(Operation {
                owner: None,
                lease: time(words),
                returned: time(words),
                ..operation(Verb::Acquire, Outcome::Taken, &client, 0)
            })
        }
        "refused" => Record::Operation(operation(Verb::Acquire, Outcome::Refused, "a:1", 0)),
        "wrote" | "read" => Record::Accessed(Access {
            kind: if verb == "read" {
                AccessKind::Read
            } else {
                AccessKind::Write
            },
            key,
            owner: text(words),
            token: number(words),
            at: time(words),
            accepted: true,
            late: false,
        }),
        "killed" => Record::Killed {
            process: process_of(&text(words)),
            at: time(words),
        },
        "closed" => Record::Closed {
            client: text(words),
            at: time(words),
        },
        "flushed" => fault(FaultKind::AllFlushed, words),
        "masters" => fault(FaultKind::MasterCutOff, words),
        "paused" => fault(FaultKind::ServerPaused, words),
        "replaced" => fault(FaultKind::MasterReplaced, words),
        "deleted" => {
            let (key, at) = (Some(text(words)), time(words));
            let fault = Fault::new(FaultKind::LockDeleted, at, at);
            Record::Fault(Fault { key, ..fault })
        }
        "seen" => Record::Locked {
            key,
            owner: text(words),
            first: time(words),
            last: time(words),
            server: None,
        },
        "left-over" => Record::Leftover { what: text(words) },
        "quorum" => Record::Run(Run {
            seed: 0,
            store: Kind::Quorum,
            server: None,
            seconds: 1,
            processes: 1,
            tasks: 1,
            keys: 1,
            floor: 0,
            replicas: 0,
            at: 0,
        }),
        verb => unreachable!("`{verb}` is not a record"),
    };
    let at = records.len();
    records.push(record);
    while let Some(word) = words.next() {
        if let Some(record) = detail(&mut records[at], word, words) {
            records.push(record);
        }
    }
}

fn fault(kind: FaultKind, words: &mut Words<'_>) -> Record {
    Record::Fault(Fault::new(kind, time(words), time(words)))
}

/// Adds a detail to a record, or returns the record that it is.
fn detail(record: &mut Record, word: &str, words: &mut Words<'_>) -> Option<Record> {
    let operation = match record {
        Record::Operation(operation) => operation,
        Record::Fault(Fault { named, .. }) if word == "named" => {
            *named = Some(time(words));
            return None;
        }
        Record::Fault(Fault { server, .. }) | Record::Locked { server, .. } if word == "on" => {
            *server = Some(number(words));
            return None;
        }
        Record::Accessed(access) if word == "rejected" => {
            access.accepted = false;
            return None;
        }
        record => unreachable!("`{word}` is not a detail of {record:?}"),
    };
    let (key, owner) = (KEY.to_owned(), operation.owner.clone().unwrap_or_default());
    match word {
        "early" => operation.returned -= 1,
        "runs" => operation.verb = Verb::Run,
        "shares" => operation.mode = Mode::Shared,
        "permits" => {
            let (take, of) = (1, number(words));
            operation.mode = Mode::Permits { take, of };
        }
        "takes" => {
            let take = number(words);
            if let Mode::Permits { take: one, .. } = &mut operation.mode {
                *one = take;
            }
        }
        "keeps" => operation.min_hold = Some(time(words)),
        "at" => operation.invoke = time(words),
        "looked" => {
            let (at, valid_until) = (time(words), Some(time(words)));
            return Some(Record::Looked {
                key,
                owner,
                at,
                valid_until,
            });
        }
        "downgraded" => {
            let at = time(words);
            return Some(Record::Downgraded { key, owner, at });
        }
        "left" => {
            let at = time(words);
            return Some(Record::Left { key, owner, at });
        }
        word => unreachable!("`{word}` is not a detail of a call"),
    }
    None
}
