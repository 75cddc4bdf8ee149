//! The explored worlds.

use crate::{
    protocol::{Bug, ClientBug, Config, Faults},
    server::ServerBug,
};

const NONE: Faults = Faults::NONE;
const REPEATS: Faults = Faults { repeats: 1, ..NONE };
const GIVES_UP: Faults = Faults {
    gives_up: 1,
    ..NONE
};
const TIME_OUTS: Faults = Faults {
    time_outs: 1,
    ..NONE
};
const LATE: Faults = Faults {
    time_outs: 1,
    gives_up: 1,
    ..NONE
};
const CRASHES: Faults = Faults { crashes: 1, ..NONE };
const SHUT_DOWNS: Faults = Faults {
    shut_downs: 1,
    ..NONE
};
const LOST_NOTIFICATIONS: Faults = Faults {
    lost_notifications: 1,
    ..NONE
};
const RESTARTS: Faults = Faults {
    restarts: 1,
    ..NONE
};
const LOST_FENCES: Faults = Faults {
    lost_fences: 1,
    ..NONE
};
const MISSED_GRANTS: Faults = Faults {
    missed_grants: 1,
    ..NONE
};
const REFUSED_TRIES: Faults = Faults {
    refused_tries: 1,
    ..NONE
};
const RELEASE_REQUESTED: Faults = Faults {
    release_requests: 1,
    ..NONE
};
const FORCED: Faults = Faults {
    forced_releases: 1,
    ..NONE
};
const OPERATOR: Faults = Faults {
    release_requests: 1,
    forced_releases: 1,
    ..NONE
};
const LOST: Faults = Faults {
    lost_requests: 1,
    lost_replies: 1,
    lost_notifications: 1,
    ..NONE
};

/// Returns the worlds that every test run explores. Two of them lack one of the two ways to notify
/// an owner that its lock is wanted, because the other is enough.
#[must_use]
pub fn small() -> Vec<Config> {
    let any = Config::new;
    let prompt = Config::prompt;
    let mut all = vec![
        any("any delay, writes").writing(),
        any("any delay, renewals").renewing().until(4),
        any("any delay, two callers each").of(2, 2).until(3),
        any("any delay, three callers each, until 1")
            .of(2, 3)
            .tokens(3)
            .until(1),
        any("any delay, re-entry").entries(2).until(3),
        any("any delay, one token in each fence")
            .of(2, 2)
            .tokens(1)
            .until(2),
        any("any delay, new fences")
            .of(2, 2)
            .tokens(1)
            .refencing()
            .until(2),
        any("any delay, retention").of(2, 2).retaining(1).until(2),
        any("any delay, retention, renewals")
            .renewing()
            .retaining(1)
            .until(3),
        any("repeated and late messages").with(REPEATS).until(3),
        any("late requests").with(LATE).until(2),
        any("a client dies").with(CRASHES),
        any("the server forgets, renewals")
            .renewing()
            .with(RESTARTS)
            .until(3),
        any("the server forgets, writes")
            .writing()
            .with(RESTARTS)
            .until(4),
        any("the server loses a fence, writes")
            .writing()
            .with(LOST_FENCES)
            .until(4),
        any("the server forgets, two callers each")
            .of(2, 2)
            .with(RESTARTS)
            .until(2),
        any("the server loses a fence, new fences")
            .of(2, 2)
            .tokens(1)
            .refencing()
            .with(LOST_FENCES)
            .until(1),
        prompt("in time, two callers each").of(2, 2),
        prompt("in time, new fences").of(2, 2).tokens(1).refencing(),
        prompt("in time, retention").of(2, 2).retaining(2),
        prompt("in time, retention until it is wanted, lost messages")
            .retaining(99)
            .with(LOST),
        prompt("in time, retention until it is wanted, renewals")
            .retaining(99)
            .renewing()
            .with(LOST_NOTIFICATIONS)
            .until(9),
        prompt("in time, retention, wanted by message only")
            .retaining(99)
            .renewing()
            .with(LOST_NOTIFICATIONS)
            .until(9)
            .but(Bug::Client(ClientBug::WantedUnread)),
        prompt("in time, retention, wanted by renewals only")
            .retaining(99)
            .renewing()
            .with(LOST_NOTIFICATIONS)
            .until(9)
            .but(Bug::Server(ServerBug::WantedOnce)),
        prompt("in time, a client shuts down")
            .retaining(99)
            .with(SHUT_DOWNS),
        prompt("in time, re-entry").entries(2),
        prompt("in time, three clients").of(3, 1),
        prompt("in time, lost messages").with(LOST),
        prompt("in time, callers give up").with(LATE),
        prompt("in time, one of three dies").of(3, 1).with(Faults {
            crashes: 1,
            lost_notifications: 1,
            ..NONE
        }),
    ];
    all.extend(small_with_older_copies());
    all.extend(small_with_attempts());
    all.extend(small_with_operator());
    all
}

/// Returns the worlds that are explored on demand.
#[must_use]
pub fn large() -> Vec<Config> {
    let any = Config::new;
    let prompt = Config::prompt;
    let mut all = vec![
        any("any delay, new fences, until 3")
            .of(2, 2)
            .tokens(1)
            .refencing()
            .until(3),
        any("any delay, three callers each")
            .of(2, 3)
            .tokens(3)
            .until(2),
        any("any delay, new fences, three callers each")
            .of(2, 3)
            .refencing()
            .until(1),
        any("any delay, retention, two callers each, until 3")
            .of(2, 2)
            .retaining(1)
            .until(3),
        any("any delay, retention, renewals, two callers each")
            .of(2, 2)
            .renewing()
            .retaining(1)
            .until(2),
        any("repeated and late messages, two callers each, retention")
            .of(2, 2)
            .retaining(1)
            .with(REPEATS)
            .until(1),
        any("the server forgets, two callers each, until 3")
            .of(2, 2)
            .with(RESTARTS)
            .until(3),
        any("any delay, writes, until 6").writing().until(6),
        any("any delay, renewals, until 5").renewing(),
        any("any delay, two callers each, until 4")
            .of(2, 2)
            .until(4),
        any("any delay, three clients").of(3, 1).until(3),
        any("repeated and late messages, until 4")
            .with(REPEATS)
            .until(4),
        any("repeated and late messages, renewals")
            .with(REPEATS)
            .renewing()
            .until(4),
        any("late requests, until 4").with(LATE).until(4),
        any("a client dies, renewals")
            .with(CRASHES)
            .renewing()
            .until(5),
        any("the server forgets, writes, until 5")
            .writing()
            .with(RESTARTS)
            .until(5),
        any("the server forgets, renewals, until 4")
            .renewing()
            .with(RESTARTS)
            .until(4),
        prompt("in time, two callers each, re-entry")
            .of(2, 2)
            .entries(2),
        prompt("in time, two callers each, lost messages")
            .of(2, 2)
            .with(LOST),
        prompt("in time, two callers each, callers give up")
            .of(2, 2)
            .with(LATE),
        prompt("in time, three callers each").of(2, 3).tokens(3),
        prompt("in time, new fences, lost messages")
            .of(2, 2)
            .tokens(1)
            .refencing()
            .with(LOST),
        prompt("in time, retention, two callers each, lost messages")
            .of(2, 2)
            .retaining(2)
            .renewing()
            .with(LOST),
        prompt("in time, retention, one of three dies")
            .of(3, 1)
            .retaining(2)
            .with(CRASHES),
        prompt("in time, three clients, two callers each")
            .of(3, 2)
            .until(24),
    ];
    all.extend(large_with_losses());
    all.extend(large_with_operator());
    all
}

/// Returns worlds in which a server takes over with an older copy of the data.
fn small_with_older_copies() -> Vec<Config> {
    let any = Config::new;
    vec![
        any("an older copy takes over")
            .of(2, 2)
            .with(MISSED_GRANTS)
            .until(2),
        any("an older copy takes over, new fences")
            .of(2, 2)
            .tokens(1)
            .refencing()
            .with(MISSED_GRANTS)
            .until(1),
    ]
}

/// Returns worlds in which a caller that does not wait finds the lock taken.
fn small_with_attempts() -> Vec<Config> {
    let any = Config::new;
    let prompt = Config::prompt;
    vec![
        any("attempts in vain, retention")
            .of(2, 2)
            .retaining(1)
            .with(REFUSED_TRIES)
            .until(1),
        any("attempts in vain, lost messages")
            .with(Faults {
                refused_tries: 1,
                ..LOST
            })
            .until(3),
        prompt("in time, an attempt in vain ends a retention")
            .of(1, 1)
            .retaining(99)
            .with(REFUSED_TRIES),
    ]
}

/// Returns worlds in which an operator requests or forces a release.
fn small_with_operator() -> Vec<Config> {
    let any = Config::new;
    let prompt = Config::prompt;
    vec![
        any("an operator asks, two callers each")
            .of(2, 2)
            .with(RELEASE_REQUESTED)
            .until(2),
        any("an operator asks, retention")
            .of(2, 2)
            .retaining(1)
            .with(RELEASE_REQUESTED)
            .until(1),
        any("an operator forces, writes")
            .writing()
            .with(FORCED)
            .until(3),
        any("an operator forces, renewals")
            .renewing()
            .with(FORCED)
            .until(2),
        any("an operator forces, two callers each")
            .of(2, 2)
            .with(FORCED)
            .until(1),
        prompt("in time, an operator asks and forces").with(OPERATOR),
    ]
}

fn large_with_losses() -> Vec<Config> {
    let any = Config::new;
    vec![
        any("the server loses a fence, new fences, until 2")
            .of(2, 2)
            .tokens(1)
            .refencing()
            .with(LOST_FENCES)
            .until(2),
        any("an older copy takes over, new fences, until 2")
            .of(2, 2)
            .tokens(1)
            .refencing()
            .with(MISSED_GRANTS)
            .until(2),
    ]
}

fn large_with_operator() -> Vec<Config> {
    let any = Config::new;
    let prompt = Config::prompt;
    vec![
        any("an operator asks, three callers each")
            .of(2, 3)
            .with(RELEASE_REQUESTED)
            .until(2),
        any("an operator forces, writes, until 4")
            .writing()
            .with(FORCED)
            .until(4),
        any("an operator forces, two callers each, until 2")
            .of(2, 2)
            .with(FORCED)
            .until(2),
        any("an operator forces, renewals, until 3")
            .renewing()
            .with(FORCED)
            .until(3),
        prompt("in time, two callers each, an operator asks and forces")
            .of(2, 2)
            .with(OPERATOR),
    ]
}

/// A bug, in a world in which it shows.
#[derive(Debug)]
pub struct Mistake {
    /// The world, with the bug.
    pub world: Config,
    /// The violated property.
    pub breaks: &'static str,
}

const RELIES: &str = "no lock is granted that another client relies on";
const TOKENS: &str = "tokens grow with every hold";
const SERVED: &str = "every waiter is served before the end";
const LEFT_BEHIND: &str = "nothing is left behind when all clients have gone";
const FREE: &str = "when all clients are dead, the lock is free after a lease";

/// Returns bugs that are found within seconds.
#[must_use]
pub fn mistakes() -> Vec<Mistake> {
    let mut all = mistakes_of_servers();
    all.extend(mistakes_of_clients());
    all.extend(mistakes_of_hand_overs());
    all.extend(mistakes_of_fences());
    all
}

fn mistakes_of_servers() -> Vec<Mistake> {
    let server = |bug, breaks, world: Config| Mistake {
        world: world.but(Bug::Server(bug)),
        breaks,
    };
    let lost_replies = Faults {
        lost_replies: 1,
        ..NONE
    };
    let any = Config::new;
    let prompt = Config::prompt;
    vec![
        server(
            ServerBug::ReleaseOfOthers,
            RELIES,
            any("a release of others' locks")
                .of(2, 2)
                .with(GIVES_UP)
                .until(1),
        ),
        server(
            ServerBug::RenewalCreates,
            "a renewal creates no lock",
            any("a renewal that creates a lock").renewing(),
        ),
        server(
            ServerBug::CountAdded,
            "the server counts the entries",
            prompt("a count that is added to")
                .entries(2)
                .with(lost_replies),
        ),
        server(
            ServerBug::RenewalOfOthers,
            "after the lock was granted to another owner, a client relies on it for one lease at most",
            any("a renewal of others' locks")
                .renewing()
                .with(RESTARTS)
                .until(4),
        ),
        server(
            ServerBug::GraceWithoutEnd,
            FREE,
            any("a hand-off without an end"),
        ),
        server(
            ServerBug::HandOffToAbsent,
            FREE,
            any("a hand-off to the dead"),
        ),
    ]
}

fn mistakes_of_clients() -> Vec<Mistake> {
    let client = |bug, breaks, world: Config| Mistake {
        world: world.but(Bug::Client(bug)),
        breaks,
    };
    let lost_notifications = Faults {
        lost_notifications: 1,
        ..NONE
    };
    let any = Config::new;
    let prompt = Config::prompt;
    vec![
        client(
            ClientBug::LeaseFromReply,
            "at most one client holds the lock",
            any("a lease from the reply"),
        ),
        client(
            ClientBug::LeaseFromNotification,
            RELIES,
            any("a lease from the notification").of(2, 2).until(4),
        ),
        client(
            ClientBug::LateNotificationAccepted,
            RELIES,
            any("a late notification accepted").of(2, 2).until(4),
        ),
        client(
            ClientBug::RenewsAfterRelease,
            "no hold is renewed after its release",
            any("a watchdog that outlives the release"),
        ),
        client(
            ClientBug::OwnerReused,
            TOKENS,
            any("an owner used again").of(2, 2).with(TIME_OUTS).until(2),
        ),
        client(
            ClientBug::NoTimer,
            SERVED,
            prompt("a waiter without a timer").with(lost_notifications),
        ),
        client(
            ClientBug::NeverLeavesQueue,
            LEFT_BEHIND,
            prompt("a caller that gives up without leaving the queue").with(GIVES_UP),
        ),
        client(
            ClientBug::DoneAfterLease,
            "no release counts as done after another owner had the lock",
            any("a release in doubt after the lease").with(TIME_OUTS),
        ),
    ]
}

/// Returns bugs of ownerships that serve several holds.
fn mistakes_of_hand_overs() -> Vec<Mistake> {
    let client = |bug, breaks, world: Config| Mistake {
        world: world.but(Bug::Client(bug)),
        breaks,
    };
    let any = Config::new;
    let prompt = Config::prompt;
    vec![
        client(
            ClientBug::HandOverAfterLease,
            TOKENS,
            any("a hand-over after the lease").of(2, 2).until(4),
        ),
        client(
            ClientBug::HandOverInDoubt,
            "the server counts the entries",
            prompt("a hand-over in doubt").of(2, 2).entries(2),
        ),
        client(
            ClientBug::LostHandedOver,
            "no hold of an ownership begins after its loss",
            any("a hand-over of a lost ownership")
                .of(2, 2)
                .renewing()
                .with(RESTARTS)
                .until(2),
        ),
        client(
            ClientBug::RevokedHandedOver,
            "no hold of an ownership begins after its loss",
            any("a hand-over after a request to release")
                .of(2, 2)
                .with(RELEASE_REQUESTED)
                .until(1),
        ),
        client(
            ClientBug::WantedUnnoticed,
            SERVED,
            prompt("an owner that does not learn that it is wanted")
                .retaining(99)
                .renewing()
                .with(LOST_NOTIFICATIONS),
        ),
        client(
            ClientBug::HandoversUnlimited,
            "while other clients wait, a client makes no more local hand-overs than its limit",
            any("local hand-overs without a limit").of(2, 2).until(1),
        ),
        client(
            ClientBug::RetainedWhileReleased,
            RELIES,
            any("retention beside a release")
                .of(2, 2)
                .retaining(1)
                .until(1),
        ),
        client(
            ClientBug::RetainedAfterShutDown,
            LEFT_BEHIND,
            prompt("retention after the end of its client")
                .retaining(99)
                .with(SHUT_DOWNS),
        ),
    ]
}

/// Returns bugs of fences and tokens.
fn mistakes_of_fences() -> Vec<Mistake> {
    let server = |bug, world: Config| Mistake {
        world: world.but(Bug::Server(bug)),
        breaks: TOKENS,
    };
    let client = |bug, world: Config| Mistake {
        world: world.but(Bug::Client(bug)),
        breaks: TOKENS,
    };
    let any = Config::new;
    vec![
        server(
            ServerBug::FenceReset,
            any("a release that resets the fence"),
        ),
        server(ServerBug::FenceReused, any("a fence that two owners share")),
        server(
            ServerBug::FenceIgnoresLast,
            any("a fence that ignores the last one"),
        ),
        server(
            ServerBug::FenceIgnoresClock,
            any("a fence that ignores the clock after a restart").with(RESTARTS),
        ),
        server(
            ServerBug::FenceIgnoresClock,
            any("a fence that ignores the clock after a loss").with(LOST_FENCES),
        ),
        server(
            ServerBug::FenceIgnoresClock,
            any("a fence that ignores the clock on an older copy").with(MISSED_GRANTS),
        ),
        server(
            ServerBug::FenceForgotten,
            any("a renewed fence that is forgotten")
                .of(2, 2)
                .refencing()
                .until(2),
        ),
        client(
            ClientBug::TokensOfLost,
            any("tokens of a lost ownership").of(2, 2).until(4),
        ),
        client(
            ClientBug::TokensOfReleased,
            any("tokens of a released ownership").of(2, 2).until(1),
        ),
    ]
}

/// Returns bugs that take longer to find.
#[must_use]
pub fn hard_mistakes() -> Vec<Mistake> {
    let any = Config::new;
    vec![
        Mistake {
            world: any("a hold revived by a late reply")
                .renewing()
                .with(REPEATS)
                .until(4)
                .but(Bug::Client(ClientBug::RevivedByReply)),
            breaks: RELIES,
        },
        Mistake {
            world: any("a renewed fence after other owners")
                .of(2, 2)
                .tokens(1)
                .refencing()
                .with(Faults {
                    repeats: 1,
                    ..FORCED
                })
                .until(1)
                .but(Bug::Server(ServerBug::FenceAfterOthers)),
            breaks: TOKENS,
        },
    ]
}
