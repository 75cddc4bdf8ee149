//! The manual's sections on the subcommands that look at locks, or take them from their holders.

use super::{Section, UNAVAILABLE, USAGE};

/// The sections of `rlock ls`.
pub(crate) const LS: &[Section] = &[
    Section {
        title: "Output",
        rows: &[
            ("KEY", "the key of the lock"),
            (
                "HOLDER",
                "service@host and process id; in parentheses the mode, or why there is no holder; in brackets the value that \
                 a leader announces",
            ),
            ("SINCE", "how long the lock has been held"),
            (
                "LEASE LEFT",
                "how long the store keeps the lock without a renewal",
            ),
            (
                "WAITERS",
                "waiting calls of the holder's client, and other waiting clients",
            ),
        ],
        text: "(no reply): the holder's process has ended, is stuck or cut off. (min_hold): no call holds the lock, \
               but min_hold keeps it taken, as after a run of rlock once, of which only the last tick of each job is \
               shown; --json shows all. (other software): the key is not one of rlock's. (shared), \
               (1 of 3 permits): the mode of a holder that is not exclusive, with the permits that it takes. A lock with several holders has a row \
               for each of them, and each row counts all waiters. The heading is shown on a terminal only, and lines \
               are cut to its width there.",
    },
    Section {
        title: "Exit status",
        rows: &[("0", "also if no lock is held"), UNAVAILABLE, USAGE],
        text: "",
    },
];

/// The sections of `rlock inspect`.
pub(crate) const INSPECT: &[Section] = &[
    Section {
        title: "Several holders",
        rows: &[],
        text: "The line mode shows that the lock is shared or has permits, and the number of holders. The output \
               describes one of them, and lists the owners of the others. With --json these are the fields mode, \
               permits, permits_taken, holder_count and other_owners.",
    },
    Section {
        title: "Exit status",
        rows: &[
            (
                "0",
                "the lock is taken; with --watch, the output was closed",
            ),
            ("1", "the lock is free"),
            UNAVAILABLE,
            USAGE,
        ],
        text: "",
    },
];

/// The sections of `rlock extend`.
pub(crate) const EXTEND: &[Section] = &[
    Section {
        title: "Holders",
        rows: &[],
        text: "Meant for a lock that a program has detached, and whose token it has passed on. A holder that still has its guard \
               relies on the longer lease, too. Nothing changes if the present lease ends later than the new one.",
    },
    Section {
        title: "Exit status",
        rows: &[
            ("0", "the lock is extended"),
            (
                "1",
                "the lock is not extended: it is free, or its current hold has another token",
            ),
            UNAVAILABLE,
            USAGE,
        ],
        text: "",
    },
];

/// The sections of `rlock release`.
pub(crate) const RELEASE: &[Section] = &[
    Section {
        title: "Exit status",
        rows: &[
            (
                "0",
                "the lock is released; with --ask and without --wait, its holder has received the request; with --revoke and \
                 without --wait, its holder has released it or is about to",
            ),
            (
                "1",
                "the lock is not released: it is free, has another token or owner, its holder did not reply to --ask or \
                 --revoke and still has it, or the user did not confirm",
            ),
            (
                "75",
                "its holder has received --ask or --revoke, but not released it within --wait",
            ),
            UNAVAILABLE,
            ("64", "wrong arguments, or neither a terminal nor --yes"),
        ],
        text: "",
    },
    Section {
        title: "Which option",
        rows: &[
            (
                "--ask",
                "safe, and nothing is lost: the holder ends when it is ready; a leader resigns, and rlock run sends its command the signal of --on-request",
            ),
            (
                "--revoke",
                "safe: the next holder begins after the body has stopped",
            ),
            (
                "--token N",
                "for a holder that does not reply; a later hold is not touched",
            ),
            (
                "--force",
                "for every holder, and for a lock that min_hold keeps taken",
            ),
        ],
        text: "The holder logs the name of this user, host and process. After --token and --force its \
               body may run on while the next holder works, but storage that checks the fencing token refuses its \
               writes. If a lock has several holders, --ask, --revoke and --force apply to all of them, at most 100, and --token \
               applies to those with the token.",
    },
];

/// The sections of `rlock doctor`.
pub(crate) const DOCTOR: &[Section] = &[Section {
    title: "Exit status",
    rows: &[
        ("0", "locks are safe, perhaps with advice"),
        ("1", "a lock would not be safe, or not be granted"),
        UNAVAILABLE,
        USAGE,
    ],
    text: "",
}];

/// The sections of `rlock postgres schema`.
pub(crate) const SCHEMA: &[Section] = &[
    Section {
        title: "The SQL",
        rows: &[
            (
                "first",
                "creates the schema, its tables, and the functions of this version, unless they are there",
            ),
            (
                "then",
                "grants the --role what it needs, or shows it as a comment",
            ),
            (
                "at its end",
                "shows, as a comment, how to drop the functions of other versions once no client of them runs",
            ),
        ],
        text: "The command connects to no server. Execute its output with psql -v ON_ERROR_STOP=1, or as a migration, with a role \
               that may create the schema. You can execute it again, even while clients run. It fails if the schema has the \
               tables of another version, or of another durability.",
    },
    Section {
        title: "Exit status",
        rows: &[("0", "the SQL is printed"), USAGE],
        text: "",
    },
];

/// The sections of `rlock top`.
pub(crate) const TOP: &[Section] = &[
    Section {
        title: "Keys",
        rows: &[
            ("w, a", "sorts by waiters, by age; Tab switches"),
            ("up, down", "scrolls; also page up, page down, home"),
            ("q", "quits; also Esc and Ctrl-C"),
        ],
        text: "The rates count the locks that appear and disappear between two refreshes, averaged over ten \
               seconds. A lock that is held for less than the interval is not seen. The losses are those of all \
               processes that replied, each counted since its start. Without a terminal, each refresh prints one line.",
    },
    Section {
        title: "Exit status",
        rows: &[
            ("0", "after q"),
            UNAVAILABLE,
            USAGE,
            ("128 + n", "signal n arrived"),
        ],
        text: "",
    },
];
