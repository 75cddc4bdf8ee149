//! Tips for mistakes on the command line for which clap has none.

use std::{env, ffi::OsString};

use clap::{
    ArgMatches, Command, CommandFactory as _,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{cli::Cli, text::escaped};

/// Adds a tip to an error for which clap has none.
pub(crate) fn added_to(mut error: clap::Error) -> clap::Error {
    let names = |name| match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(given)) => given == name,
        Some(ContextValue::Strings(missing)) => missing.iter().any(|one| one.starts_with(name)),
        _ => false,
    };
    let mut hints = Vec::new();
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    if is_unknown && names("--timeout") {
        hints.push(
            "the option '--wait' of 'rlock run' and 'rlock wait' limits how long to wait for a lock".into(),
        );
    } else if is_unknown && names("--at-least") {
        hints.push("the option is now called '--min-hold'".into());
    } else if is_unknown || names("<CMD>") {
        hints.extend(
            with_separator(env::args_os().collect())
                .map(|corrected| format!("'--' precedes the command: {corrected}").into()),
        );
    }
    if !hints.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(hints));
    }
    error
}

/// Inserts the missing `--` into the command line of an `rlock run`, `rlock once` or `rlock elect`. Returns `None` for other mistakes.
fn with_separator(mut words: Vec<OsString>) -> Option<String> {
    let matches = without_separator(&words)?;
    let rest = matches.get_many::<OsString>("command")?.len();
    let mut rest = words.split_off(words.len() - rest);
    if words.last().is_some_and(|word| word == "--") {
        return None;
    }
    // The names of the others need no option.
    if matches!(matches.try_contains_id("keys"), Ok(false)) {
        words.extend(["--key".into(), rest.remove(0)]);
    }
    words.push("--".into());
    // A `--` may stand before the command already, but not before the key.
    words.extend(rest.strip_prefix(&["--".into()]).unwrap_or(&rest).to_vec());
    if words.last().is_some_and(|word| word == "--") {
        return None;
    }
    words[0] = "rlock".into();
    // A URL may have a password.
    let urls = matches.get_many::<String>("urls").into_iter().flatten();
    let urls: Vec<&String> = urls.filter(|url| !url.is_empty()).collect();
    let shown = words.iter().map(|word| {
        let mut word = word.to_string_lossy().into_owned();
        for url in &urls {
            word = word.replace(url.as_str(), "URL");
        }
        quoted(&word)
    });
    Some(shown.collect::<Vec<_>>().join(" "))
}

/// Parses the command line as if the command began at the first word that belongs to no option.
fn without_separator(words: &[OsString]) -> Option<ArgMatches> {
    let lenient = |subcommand: Command| {
        subcommand.mut_arg("command", |command| {
            command.last(false).trailing_var_arg(true)
        })
    };
    let run = |run: Command| lenient(run).mut_arg("keys", |keys| keys.num_args(1).required(false));
    let lenient = Cli::command()
        .mut_subcommand("run", run)
        .mut_subcommand("once", lenient)
        .mut_subcommand("elect", lenient);
    let mut matches = lenient.try_get_matches_from(words).ok()?;
    let (name, matches) = matches.remove_subcommand()?;
    ["run", "once", "elect"]
        .contains(&&*name)
        .then_some(matches)
}

/// Quotes a word for a shell, if it needs that.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    let word = escaped(word);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
