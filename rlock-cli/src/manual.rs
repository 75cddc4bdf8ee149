//! Manual pages and completion scripts, generated from the command line.

mod elections;
mod operations;

use std::fmt::Write as _;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

pub(crate) use self::{
    elections::{ELECT, LEADER},
    operations::{DOCTOR, EXTEND, INSPECT, LS, RELEASE, SCHEMA, TOP},
};
use crate::{
    exit::{Failure, Status},
    output,
};

/// A section of the manual of a subcommand: rows of a word and its meaning, then a text.
pub(crate) struct Section {
    title: &'static str,
    rows: &'static [(&'static str, &'static str)],
    text: &'static str,
}

const UNAVAILABLE: (&str, &str) = ("69", "the store is unreachable, or refuses the request");
const USAGE: (&str, &str) = ("64", "wrong arguments or options");

/// The sections of `rlock run`.
pub(crate) const RUN: &[Section] = &[
    Section {
        title: "Exit status",
        rows: &[
            (
                "the command's",
                "the command ran; 128 + n if signal n ended it",
            ),
            ("75, or -E N", "the locks were not acquired"),
            (
                "69",
                "the store was unreachable for the whole wait, or refuses the request",
            ),
            (
                "64",
                "wrong arguments or options, or an outer rlock run has a lock",
            ),
            (
                "124",
                "a lock was lost before the command ended, and the command was stopped",
            ),
            ("125", "rlock itself failed"),
            ("126", "the command cannot be executed"),
            ("127", "the command was not found"),
            ("128 + n", "signal n arrived before the locks were acquired"),
        ],
        text: "",
    },
    Section {
        title: "Modes",
        rows: &[
            ("without option", "no other command holds the locks"),
            (
                "-s, --shared",
                "other commands with --shared may run at the same time, but those without it may not",
            ),
            (
                "--permits N",
                "waits while N permits or more are taken; refused on a quorum",
            ),
            (
                "--take K",
                "takes K of the N permits, all or none; while it waits, later commands wait behind it, even for one permit",
            ),
        ],
        text: "The option applies to all keys. Waiters of all modes are served in the order in which they came, except \
               on a quorum. A shared hold may have the same token as another reader, but a smaller one than every \
               later exclusive hold. Tokens of permits are not ordered.",
    },
    Section {
        title: "Environment of the command",
        rows: &[
            ("RLOCK_KEY", "the key of the first lock"),
            (
                "RLOCK_TOKEN",
                "its fencing token, which is larger than that of every earlier holder, except as described under Modes",
            ),
            ("RLOCK_OWNER", "its owner, as the store knows it"),
            ("RLOCK_KEYS", "the number of locks"),
            (
                "RLOCK_KEY_N",
                "the key of lock N, in the order of the options; also RLOCK_TOKEN_N and RLOCK_OWNER_N",
            ),
            (
                "RLOCK_HELD",
                "the owners of these locks, and of those of outer rlock runs",
            ),
        ],
        text: "",
    },
    Section {
        title: "Processes",
        rows: &[],
        text: "The command inherits the standard streams, and has a process group of its own. HUP, INT, TERM, QUIT, \
               USR1 and USR2 are passed on to the whole group. The locks are released after the whole group has \
               ended, even if the command ends first. rlock does not wait for a process that leaves the group (setsid). \
               If rlock is killed, Linux sends --signal to the command, and the locks become free when their lease ends.",
    },
];

/// The sections of `rlock once`.
pub(crate) const ONCE: &[Section] = &[
    Section {
        title: "Exit status",
        rows: &[
            (
                "the command's",
                "this host ran the command; 128 + n if signal n ended it",
            ),
            ("0, or -E N", "another host runs the tick or has run it"),
            (
                "79",
                "the tick's window has ended, and the store has no record of a run; changed by --missed-exit-code",
            ),
            (
                "64",
                "wrong arguments, or the tick is more than its window ahead, or more than a year ago",
            ),
            (
                "69",
                "the store is unreachable, with --retry for the whole window, or refuses the request",
            ),
            (
                "124",
                "the lock was lost before the command ended, and the command was stopped",
            ),
            ("125 to 128 + n", "as for rlock run"),
        ],
        text: "",
    },
    Section {
        title: "Ticks and windows",
        rows: &[
            (
                "until tick + window",
                "a host whose clock shows this time may run the tick",
            ),
            (
                "until tick + 24 windows",
                "the store keeps the record of a run, for 24 hours at most",
            ),
        ],
        text: "A tick runs once on hosts whose clocks differ by less than the window. The scheduler has to pass the same tick \
               and window on all hosts. Ticks are whole seconds. A host that calls after the window runs nothing, and asks the \
               store for the record.",
    },
    Section {
        title: "Failures",
        rows: &[
            (
                "by default",
                "the tick counts as done even if the command fails, cannot be executed, or its host dies",
            ),
            (
                "--retry",
                "frees the tick at once if the command fails, and after --lease if its host dies; each host tries once",
            ),
        ],
        text: "All hosts of a job have to make the same choice. With --retry, --lease has to be shorter than the window. No lock can \
               tell whether the command of a dead host has done its work, so such a command must be safe to run again.",
    },
    Section {
        title: "Environment of the command",
        rows: &[
            ("RLOCK_TICK", "the tick, as 2026-11-27T02:00:00Z"),
            (
                "RLOCK_KEY",
                "NAME:TICK, in which NAME is percent-encoded; if --again runs a done tick, NAME:TICK:again",
            ),
            ("RLOCK_TOKEN", "its fencing token, as for rlock run"),
        ],
        text: "Processes, signals and the other variables are as for rlock run.",
    },
];

/// The sections of `rlock wait`.
pub(crate) const WAIT: &[Section] = &[Section {
    title: "Exit status",
    rows: &[
        ("0", "the lock is free, or a client only retains it"),
        ("75", "the lock was still taken after --wait"),
        UNAVAILABLE,
        USAGE,
    ],
    text: "",
}];

/// Returns the sections of a subcommand.
fn sections(subcommand: &str) -> &'static [Section] {
    match subcommand {
        "run" => RUN,
        "once" => ONCE,
        "elect" => ELECT,
        "leader" => LEADER,
        "wait" => WAIT,
        "ls" => LS,
        "inspect" => INSPECT,
        "extend" => EXTEND,
        "release" => RELEASE,
        "doctor" => DOCTOR,
        "top" => TOP,
        "schema" => SCHEMA,
        _ => &[],
    }
}

/// Returns the sections as the end of a help text.
pub(crate) fn help(sections: &[Section]) -> String {
    let mut help = String::new();
    for (number, section) in sections.iter().enumerate() {
        let gap = if number == 0 { "" } else { "\n" };
        let _ = writeln!(help, "{gap}{}:", section.title);
        for (word, meaning) in section.rows {
            let _ = writeln!(help, "  {word:<14} {meaning}");
        }
        if !section.text.is_empty() {
            let _ = writeln!(help, "  {}", section.text);
        }
    }
    help
}

/// Prints the completion script of a shell.
pub(crate) fn completions(mut rlock: Command, shell: Shell) -> Result<Status, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut rlock, "rlock", &mut script);
    output::text(&script)?;
    Ok(Status::SUCCESS)
}

/// Prints the manual page of `rlock`, or of one subcommand, which several words may name.
pub(crate) fn page(mut command: Command, subcommand: &[String]) -> Result<Status, Failure> {
    // Adds the options of `rlock` to its subcommands.
    command.build();
    for name in subcommand {
        let found = command.find_subcommand(name).cloned();
        let unknown = || Failure::new(Status::USAGE, format!("there is no subcommand `{name}`"));
        command = found.ok_or_else(unknown)?;
    }
    let page = rendered(command).map_err(|error| Failure::own("write the manual page", &error))?;
    output::text(&page)?;
    Ok(Status::SUCCESS)
}

fn rendered(command: Command) -> std::io::Result<Vec<u8>> {
    let sections = sections(command.get_name());
    let mut page = Vec::new();
    // The end of the help text would lose its lines.
    let command = command.after_long_help(None::<&str>);
    Man::new(command).render(&mut page)?;
    let mut roff = Roff::new();
    for section in sections {
        roff.control("SH", [section.title.to_uppercase().as_str()]);
        for (word, meaning) in section.rows {
            roff.control("TP", []);
            roff.text([bold(*word)]);
            roff.text([roman(*meaning)]);
        }
        roff.text([roman(section.text)]);
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_section_that_a_subcommand_has_is_in_its_help_and_on_its_page() {
        let mut rlock = Cli::command();
        let mut commands: Vec<_> = rlock.get_subcommands_mut().collect();
        let mut with_sections = 0;
        while let Some(subcommand) = commands.pop() {
            let help = subcommand.render_long_help().to_string();
            let page = String::from_utf8(rendered(subcommand.clone()).unwrap()).unwrap();
            for section in sections(subcommand.get_name()) {
                assert!(help.contains(section.title), "{help}");
                let heading = format!(".SH \"{}\"", section.title.to_uppercase());
                let is_there = page.contains(&heading) || page.contains(&heading.replace('"', ""));
                assert!(is_there, "{page}");
                with_sections += 1;
            }
            commands.extend(subcommand.get_subcommands_mut());
        }
        assert!(with_sections > 12, "{with_sections}");
    }
}
