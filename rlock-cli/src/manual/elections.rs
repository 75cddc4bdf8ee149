//! The manual's sections on `rlock elect` and `rlock leader`.

use super::{Section, UNAVAILABLE};

/// The sections of `rlock elect`.
#[rustfmt::skip]
pub(crate) const ELECT: &[Section] = &[
    Section {
        title: "End of a term",
        rows: &[
            ("the command", "ends with any status but 126 and 127: rlock resigns, and campaigns again after a pause"),
            ("a loss", "stops the command by --signal, and by KILL after --kill-after; then rlock campaigns again"),
            ("a request", "from rlock release --ask sends --signal to the command, but never KILL; when the command has ended, rlock resigns and campaigns again"),
            ("a signal", "HUP, INT, QUIT or TERM is passed on; when the command has ended, rlock resigns and ends, too"),
        ],
        text: "The pause begins at 100 ms and doubles up to 10 s, but begins at 100 ms again after a command that ran for more than 10 s. To hold the \
               lock for one term, and to end with the command, use rlock run with the same key. Once it is connected, rlock keeps campaigning \
               while the store is down, is full, or refuses it, for example after a change of its password or its permissions.",
    },
    Section {
        title: "Exit status",
        rows: &[
            ("the command's", "after a signal; 128 + n if signal n ended the command, or arrived while rlock did not lead"),
            ("126, 127", "the command cannot be executed or was not found, or it ended with this status"),
            ("64, 125", "as for rlock run"),
            ("69", "the store refuses the first connection"),
        ],
        text: "",
    },
    Section {
        title: "Environment of the command",
        rows: &[("RLOCK_TERM", "the number of the term, larger than that of every earlier leader; the same as RLOCK_TOKEN")],
        text: "The other variables, processes and signals are as for rlock run. The command gets the terminal \
               only when it reads from it, so that Ctrl-C ends rlock as well.",
    },
];

/// The sections of `rlock leader`.
#[rustfmt::skip]
pub(crate) const LEADER: &[Section] = &[Section {
    title: "Exit status",
    rows: &[
        ("0", "there is a leader, even if it does not reply and only its lease remains; with --watch, the output was closed"),
        ("1", "there is no leader"),
        UNAVAILABLE,
        ("64", "wrong arguments"),
    ],
    text: "With --watch, rlock prints a line for each new term or value, and one when there is no leader: at once after the leader has \
           resigned, and once its lease has ended after it has died.",
}];
