//! Call plans: small text files that describe the calls of a script.
//!
//! ```text
//! # A free lock is taken.
//! script renew
//! before DEL lock:{<100>}
//! keys   lock:{<100>} lock:{<100>}:fence
//! args   30000 90000 owner:<n> 0
//! answer 1
//! ```
//!
//! `script` is the name of a script that ships, or the path of a file that ends with `.lua`, relative to the plan.
//! `before` is a command that is sent before each call and not measured. It may occur several
//! times. `fill` is a number and a command that is sent so many times before the first call, and not
//! measured. `tracking on` enables client tracking for the calling connection, as for every client.
//! `listens` names a channel to which another connection subscribes. It may occur several times.
//!
//! In keys, arguments and commands, `<n>` is the number of the call, `<100>` is that number modulo
//! 100, and `''` is the empty word. `answer` is optional. It is the integer that the script
//! returns, or the first one of a list; `''` is the empty text, and `text` any other one. Another
//! reply stops the measurement, because the state is not as intended.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail, ensure};
use redis::Value;
use rlock_testkit::script_text;

/// What a script should reply.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Integer(i64),
    NoText,
    Text,
}

impl Answer {
    /// Returns whether a reply, or the first element of a list, is this one.
    pub(crate) fn is(&self, reply: &Value) -> bool {
        let first = match reply {
            Value::Array(items) => items.first().unwrap_or(&Value::Nil),
            whole => whole,
        };
        match (self, first) {
            (Self::Integer(number), Value::Int(first)) => number == first,
            (Self::NoText, Value::BulkString(text)) => text.is_empty(),
            (Self::Text, Value::BulkString(text)) => !text.is_empty(),
            _ => false,
        }
    }
}

/// The calls of one script.
pub(crate) struct Plan {
    pub(crate) name: String,
    /// The text of the script.
    pub(crate) script: String,
    /// Commands before the first call, each with the number of times that it is sent.
    pub(crate) fill: Vec<(usize, Vec<String>)>,
    /// Commands before each call, split into words.
    pub(crate) before: Vec<Vec<String>>,
    pub(crate) keys: Vec<String>,
    pub(crate) arguments: Vec<String>,
    pub(crate) answer: Option<Answer>,
    /// Whether the server tracks the keys that the calling connection reads.
    pub(crate) tracking: bool,
    /// Channels with a subscriber.
    pub(crate) listens: Vec<String>,
}

impl Plan {
    /// Reads a plan and its script.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)?;
        let mut plan = Self {
            name: path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            script: String::new(),
            fill: Vec::new(),
            before: Vec::new(),
            keys: Vec::new(),
            arguments: Vec::new(),
            answer: None,
            tracking: false,
            listens: Vec::new(),
        };
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (what, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let words = rest.split_whitespace();
            let words: Vec<String> = words
                .map(|word| if word == "''" { "" } else { word }.to_owned())
                .collect();
            match what {
                "script" => {
                    plan.script = if Path::new(rest).extension().is_some_and(|end| end == "lua") {
                        let script = path.parent().unwrap_or(Path::new("")).join(rest.trim());
                        fs::read_to_string(&script).with_context(|| script.display().to_string())?
                    } else {
                        script_text(rest.trim())
                    };
                }
                "fill" if words.len() > 1 => {
                    let times = words[0].parse().context(line.to_owned())?;
                    plan.fill.push((times, words[1..].to_vec()));
                }
                "before" if !words.is_empty() => plan.before.push(words),
                "keys" => plan.keys = words,
                "args" => plan.arguments = words,
                "answer" if words == [""] => plan.answer = Some(Answer::NoText),
                "answer" if words == ["text"] => plan.answer = Some(Answer::Text),
                "answer" => {
                    let number = rest.trim().parse().context(line.to_owned())?;
                    plan.answer = Some(Answer::Integer(number));
                }
                "tracking" if words == ["on"] => plan.tracking = true,
                "listens" if words.len() == 1 => plan.listens.extend(words),
                _ => bail!(
                    "`{line}` is neither script, fill, before, keys, args, answer, tracking on nor listens"
                ),
            }
        }
        ensure!(!plan.script.is_empty(), "no `script`");
        Ok(plan)
    }

    /// Returns the words of the call with this number.
    pub(crate) fn fill(words: &[String], number: usize) -> Vec<String> {
        words.iter().map(|word| fill(word, number)).collect()
    }
}

/// Replaces `<n>` and `<100>`.
fn fill(word: &str, number: usize) -> String {
    let mut filled = String::with_capacity(word.len());
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('<') {
        filled.push_str(before);
        if let Some((value, after)) = placeholder(after, number) {
            filled.push_str(&value.to_string());
            rest = after;
        } else {
            filled.push('<');
            rest = after;
        }
    }
    filled.push_str(rest);
    filled
}

/// Returns the value of the placeholder after an opening bracket, and the text after it.
fn placeholder(text: &str, number: usize) -> Option<(usize, &str)> {
    let (name, after) = text.split_once('>')?;
    let value = match name {
        "n" => number,
        modulus => number.checked_rem(modulus.parse().ok()?)?,
    };
    Some((value, after))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{Answer, Plan, fill};

    #[test]
    fn every_plan_of_the_folder_can_be_parsed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/formulations");
        let files = fs::read_dir(folder).expect("the folder is there");
        let paths = files.map(|file| file.expect("it can be listed").path());
        for path in paths.filter(|path| path.extension().is_some_and(|end| end == "plan")) {
            let plan = Plan::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error:#}"));
            let tracked = plan.name.ends_with("-tracked") || plan.name.contains("-to-other");
            assert_eq!(
                plan.tracking, tracked,
                "{path:?} is named after what it does"
            );
        }
        let path = Path::new(folder).join("release-to-other.plan");
        let plan = Plan::read(&path).expect("it is there");
        assert_eq!(plan.listens.len(), 1);
        assert_eq!(plan.answer, Some(Answer::Integer(1)));
        let path = Path::new(folder).join("release-shared-of-10000.plan");
        let plan = Plan::read(&path).expect("it is there");
        assert_eq!(plan.fill.last().map(|(times, _)| *times), Some(10_000));
    }

    #[test]
    fn numbers_are_filled_in() {
        assert_eq!(fill("a<n>b<100>c", 1234), "a1234b34c");
        assert_eq!(fill("<x> <", 1), "<x> <");
    }
}
