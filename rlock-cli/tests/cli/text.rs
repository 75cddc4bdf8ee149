//! Manual pages, completions and help.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use crate::common::run;

const SUBCOMMANDS: [&str; 12] = [
    "run",
    "once",
    "elect",
    "leader",
    "wait",
    "ls",
    "inspect",
    "release",
    "top",
    "doctor",
    "completions",
    "man",
];

async fn text_of(words: &[&str]) -> String {
    let outcome = run("", words).await.exits(0);
    assert_eq!(outcome.log, "", "{words:?}");
    outcome.output.join("\n")
}

#[tokio::test]
async fn every_subcommand_is_in_the_manual_the_help_and_the_completions() {
    let mut texts = vec![
        text_of(&["man"]).await,
        text_of(&["--help"]).await,
        text_of(&["help"]).await,
    ];
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        texts.push(text_of(&["completions", shell]).await);
    }
    for text in texts {
        for subcommand in SUBCOMMANDS {
            assert!(text.contains(subcommand), "{subcommand}: {text}");
        }
    }
}

#[tokio::test]
async fn help_does_not_show_the_url_of_the_environment() {
    let outcome = run("redis://:secret@localhost/", &["run", "--help"])
        .await
        .exits(0);
    assert!(outcome.output.join("\n").contains("RLOCK_URL"));
    assert!(!format!("{outcome:?}").contains("secret"));
}

#[test]
fn bash_accepts_the_completions() {
    let script = r#"set -e; eval "$("$0" completions bash)"; complete -p rlock"#;
    let output = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_rlock")])
        .output()
        .expect("bash is there");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure_and_a_full_disk_is_one() {
    let rlock = |output: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rlock"));
        let command = command.arg("man").stdout(output).stderr(Stdio::null());
        command.status().expect("it starts").code()
    };
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(rlock(writer.into()), Some(0));
    let full = std::fs::File::options().write(true).open("/dev/full");
    assert_eq!(rlock(full.expect("the device").into()), Some(125));
}

/// Returns the numbers at the start of the lines below "Exit status" in a help text.
fn statuses_in(help: &str) -> BTreeSet<String> {
    let (_, section) = help.split_once("Exit status:\n").unwrap_or_default();
    let section = section.split("\n\n").next().unwrap_or_default();
    let terms = section
        .lines()
        .filter_map(|line| line.trim().split_once("  "));
    numbers_in(terms.map(|(term, _)| term))
}

fn numbers_in<'a>(texts: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let words = texts.flat_map(|text| text.split([',', ' ']));
    let numbers = words.filter(|word| word.parse::<u8>().is_ok());
    numbers.map(str::to_owned).collect()
}

#[tokio::test]
async fn the_page_uses_every_subcommand_and_only_options_and_statuses_that_exist() {
    let page = include_str!("../../../docs/operations.md");
    let mut statuses = BTreeSet::new();
    for subcommand in SUBCOMMANDS {
        let command = format!("rlock {subcommand}");
        let uses: Vec<&str> = page.split(&command).skip(1).collect();
        assert!(!uses.is_empty(), "{command}");
        let help = text_of(&[subcommand, "--help"]).await;
        statuses.extend(statuses_in(&help));
        for rest in uses {
            // Up to the end of the code or line, or to the program that the command runs.
            let own = rest.split(['`', '\n']).next().unwrap_or_default();
            let own = own.split(" -- ").next().unwrap_or_default();
            let mut options = own.split(' ').filter(|word| word.starts_with('-'));
            let known = |option: &&str| {
                let mut words = help.split(|c: char| c.is_whitespace() || c == ',');
                words.any(|word| word == *option)
            };
            let unknown = options.find(|option| !known(option));
            assert_eq!(unknown, None, "{command}{own}");
        }
    }
    let rows = page.split_once("| exit status |").expect("a table").1;
    let rows = rows
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.trim_start_matches('|').split('|').next());
    let listed = numbers_in(cells);
    assert_eq!(listed, statuses);
}
