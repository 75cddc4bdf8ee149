//! Writes records as lines of text, and reads them: `call owner=a:1 token=7 asked=0 at=5 until=100`.
//!
//! Times are in milliseconds. A text that is not a word is in quotes, as in JSON. A line such as `with call lease=100` sets the
//! fields that the calls below it leave out, and a line that begins with `#` is a comment.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::record::Record;

/// The fields with times, which records have in nanoseconds.
const TIMES: [&str; 11] = [
    "asked", "at", "end", "first", "keeps", "last", "lease", "named", "retains", "start", "until",
];

/// Returns the line of a record.
pub(super) fn write(record: &Record) -> String {
    let fields = serde_json::to_value(record).expect("records are plain data");
    let fields = fields.as_object().expect("a record has fields");
    let mut line = fields["event"].as_str().expect("a word").to_owned();
    for (name, value) in fields.iter().filter(|(name, _)| *name != "event") {
        let value = match value {
            Value::Null => continue,
            Value::Number(nanos) if TIMES.contains(&name.as_str()) => {
                time(nanos.as_u64().expect("times are not negative"))
            }
            Value::String(text) if is_word(text) => text.clone(),
            value => value.to_string(),
        };
        let _ = write!(line, " {name}={value}");
    }
    line
}

fn time(nanos: u64) -> String {
    let text = format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn is_word(text: &str) -> bool {
    let is_other = serde_json::from_str::<Value>(text).is_ok();
    !is_other && !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '"')
}

/// Reads lines, and remembers the fields that `with` has set.
#[derive(Default)]
pub(super) struct Reader {
    common: Vec<Map<String, Value>>,
}

impl Reader {
    /// Returns the record of a line; `None` if it has none.
    pub(super) fn read(&mut self, line: &str) -> Result<Option<Record>, String> {
        let wrong = |why: &dyn std::fmt::Display| format!("`{line}` is not a record: {why}");
        let mut words = words(line);
        let event = match words.next() {
            None => return Ok(None),
            Some(word) if word.starts_with('#') => return Ok(None),
            Some("with") => words.next().unwrap_or_default(),
            Some(event) => event,
        };
        let mut fields = Map::from_iter([("event".to_owned(), event.into())]);
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| wrong(&word))?;
            let value = read(name, value).ok_or_else(|| wrong(&word))?;
            fields.insert(name.to_owned(), value);
        }
        if line.trim_start().starts_with("with ") {
            self.common.push(fields);
            return Ok(None);
        }
        let common = self.common.iter().filter(|common| common["event"] == event);
        for (name, value) in common.flatten() {
            fields.entry(name).or_insert_with(|| value.clone());
        }
        let record = serde_json::from_value(Value::Object(fields));
        record.map(Some).map_err(|error| wrong(&error))
    }
}

/// Splits a line at spaces outside of quotes.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let words = line.split(move |c: char| {
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        c.is_whitespace() && !is_quoted
    });
    words.filter(|word| !word.is_empty())
}

fn read(name: &str, value: &str) -> Option<Value> {
    if !TIMES.contains(&name) {
        return Some(serde_json::from_str(value).unwrap_or_else(|_| value.into()));
    }
    let (millis, rest) = value.split_once('.').unwrap_or((value, ""));
    let nanos =
        millis.parse::<u64>().ok()? * 1_000_000 + format!("{rest:0<6}").parse::<u64>().ok()?;
    Some(nanos.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histories::record::Fault;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let lines = [
            r#"leftover what="k1 is \"taken\" at the end""#,
            "fault end=7.5 key=k0 kind=lock_deleted start=0.000001",
            "killed at=3 process=12",
            r#"leftover what="12""#,
        ];
        for line in lines {
            let record = Reader::default().read(line).expect("a record");
            assert_eq!(write(&record.expect("a record")), line);
        }
    }

    #[test]
    fn a_with_line_sets_fields_that_the_records_below_leave_out() {
        let mut reader = Reader::default();
        let given = reader.read("with fault kind=all_flushed end=7");
        assert!(given.expect("it is read").is_none());
        let fault = reader.read("fault start=3 end=9").expect("a record");
        let Some(Record::Fault(Fault { start, end, .. })) = fault else {
            panic!("{fault:?}");
        };
        assert_eq!((start, end), (3_000_000, 9_000_000));
        assert!(reader.read("fault kind=all_flushed start=x").is_err());
    }
}
