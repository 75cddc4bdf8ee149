//! A trace in words.

use std::{fmt::Write as _, time::Duration};

use crate::{
    engine::machine::{Ask, Event, Input, Output, Reply, Request, Step},
    options::Wait,
    servers::{Answer, Body},
    store::{Acquired, Released, RenewalOutcome},
};

fn keys(request: &Request) -> String {
    let each = request
        .claims
        .iter()
        .map(|claim| format!("{} for owner {}", claim.key, claim.owner));
    each.collect::<Vec<_>>().join(" and ")
}

fn request(request: &Request) -> String {
    let doubt = if request.is_in_doubt() {
        ", after what is in doubt"
    } else {
        ""
    };
    match &request.what {
        Ask::Acquire { lease, waits } => {
            let waits = if *waits {
                "and joins its queue"
            } else {
                "once"
            };
            format!("asks for {} by {lease:?}, {waits}{doubt}", keys(request))
        }
        Ask::Enter { count, .. } => {
            format!("sets the count of {} to {count}{doubt}", keys(request))
        }
        Ask::Lower {
            count: 0, at_least, ..
        } if at_least.is_zero() => {
            format!("releases {}{doubt}", keys(request))
        }
        Ask::Lower {
            count: 0, at_least, ..
        } => {
            format!("releases {} in {at_least:?}{doubt}", keys(request))
        }
        Ask::Lower { count, .. } => {
            format!("lowers the count of {} to {count}{doubt}", keys(request))
        }
    }
}

fn acquired(acquired: &Acquired) -> String {
    match acquired {
        Acquired::Granted { fences, wanted, .. } => {
            let wanted = if *wanted { ", others wait" } else { "" };
            format!("granted with {fences:?}{wanted}")
        }
        Acquired::Taken {
            claim, ttl, queued, ..
        } => {
            let place = match queued {
                Some(place) if place.first => ", first in the queue",
                Some(_) => ", in the queue",
                None => "",
            };
            let ttl = ttl.unwrap_or(Duration::MAX);
            format!("lock {claim} is taken for {ttl:?}{place}")
        }
        Acquired::NotOwner => "the owner does not have it".to_owned(),
    }
}

fn released(released: Released) -> &'static str {
    match released {
        Released::Done => "done",
        Released::NotHeld => "the owner does not have it",
    }
}

pub(crate) fn input(client: usize, input: &Input) -> String {
    let what = match input {
        Input::Acquire {
            call, keys, terms, ..
        } => {
            let wait = match terms.wait {
                Wait::Never => "does not wait".to_owned(),
                Wait::For(wait) => format!("waits {wait:?}"),
                Wait::Forever => "waits without a limit".to_owned(),
            };
            let each = keys.iter().map(|(key, inside)| match inside {
                Some((owner, token)) => format!("{key} inside of owner {owner}, token {token}"),
                None => key.to_string(),
            });
            let each = each.collect::<Vec<_>>().join(" and ");
            let mut more = String::new();
            for (name, time) in [("max_hold", terms.max_hold), ("at_least", terms.at_least)] {
                more += &time.map_or_else(String::new, |time| format!(", {name} {time:?}"));
            }
            if !terms.retain.is_zero() {
                let _ = write!(more, ", retain {:?}", terms.retain);
            }
            if !terms.watchdog {
                more += ", no watchdog";
            }
            format!(
                "call {} wants {each}, {wait}, lease {:?}{more}",
                call.0, terms.lease
            )
        }
        Input::Leave { entry, end, call } => {
            let how = call.map_or_else(
                || "drops".to_owned(),
                |call| format!("by call {}, leaves", call.0),
            );
            format!(
                "{how} entry {} of {}, owner {} ({})",
                entry.number,
                entry.key,
                entry.owner,
                end.as_str()
            )
        }
        Input::Poll(call) => format!("polls call {}", call.0),
        Input::Cancel(call) => format!("drops call {}", call.0),
        Input::Reply(asked, reply) => {
            let reply = match reply {
                Reply::Acquired(reply) => acquired(reply),
                Reply::Released(reply) => released(*reply).to_owned(),
                Reply::Failed(failure) => format!("{failure:?}"),
                Reply::None => "no reply, the future was dropped".to_owned(),
            };
            let of = asked
                .call
                .map_or_else(String::new, |call| format!("call {}: ", call.0));
            format!("{of}hears that it {}: {reply}", request(asked))
        }
        Input::Event(key, owner, event) => {
            let owner = owner.map_or_else(String::new, |owner| format!(", owner {owner}"));
            let event = match event {
                Event::Renewed { lease, outcome, .. } => match outcome {
                    Some(RenewalOutcome::Held { .. }) => format!("renewed by {lease:?}"),
                    Some(RenewalOutcome::Lost) => "the renewal finds no lock".to_owned(),
                    Some(RenewalOutcome::Unknown) | None => "the renewal has no reply".to_owned(),
                },
                event => format!("{event:?}"),
            };
            format!("hears of {key}{owner}: {event}")
        }
        Input::Time => "looks at its schedule".to_owned(),
        Input::Drain => "drains".to_owned(),
        Input::Close => "closes".to_owned(),
        Input::End => "ends".to_owned(),
    };
    format!("client {client} {what}")
}

pub(crate) fn output(client: usize, output: &Output) -> Option<String> {
    let what = match output {
        Output::Step(Step::Send(asked)) => {
            let call = asked.call.map_or(0, |call| call.0);
            format!("call {call} {}", request(asked))
        }
        Output::Step(Step::Entered(entered)) => {
            let each = entered.iter().map(|entered| {
                let entry = &entered.entry;
                let began = entered.began.map_or("", |_| ", which begins the hold");
                format!(
                    "{} as owner {} with the token {}, entry {}{began}",
                    entry.key, entry.owner, entered.token, entry.number
                )
            });
            format!("enters {}", each.collect::<Vec<_>>().join(" and "))
        }
        Output::Step(Step::Left(outcome)) => format!("has left: {outcome:?}"),
        Output::Step(Step::Refused(why)) => format!("is refused: {why:?}"),
        Output::Step(Step::Wait | Step::AskHolder(_)) => return None,
        Output::Wake(call) => format!("wakes call {}", call.0),
        Output::Send(asked) => format!("in the background {}", request(asked)),
        Output::Renew(renew) => format!(
            "renews {} for owner {} by {:?}",
            renew.key, renew.owner, renew.lease
        ),
        Output::Ended { owner, end, .. } => {
            format!("hold of owner {owner} ends ({})", end.as_str())
        }
        Output::Lost(loss) => format!("loses {}, owner {}: {:?}", loss.key, loss.owner, loss.cause),
        Output::Revoked(revoked) => format!("tells the operator: {revoked:?}"),
        Output::GaveUp(key, owner) => format!("gives up the release of {key}, owner {owner}"),
    };
    Some(format!("client {client}   {what}"))
}

pub(crate) fn executed(server: usize, client: usize, body: &Body, answer: &Answer) -> String {
    let what = match body {
        Body::Acquire(request) => {
            let each = request
                .claims
                .iter()
                .map(|claim| format!("{} for owner {}", claim.key, claim.owner.sequence()));
            format!("acquire of {}", each.collect::<Vec<_>>().join(" and "))
        }
        Body::Release(release) => {
            format!(
                "count {} of {} for owner {}",
                release.count,
                release.key,
                release.owner.sequence()
            )
        }
        Body::Renew(renewal, lease) => {
            let claim = &renewal.claim;
            format!(
                "renewal of {} for owner {} by {lease:?}",
                claim.key,
                claim.owner.sequence()
            )
        }
    };
    let answer = match answer {
        Answer::Acquired(reply) => acquired(reply),
        Answer::Released(reply) => released(*reply).to_owned(),
        Answer::Renewed(outcome) => format!("{outcome:?}"),
    };
    format!("server {server} executes for client {client}: {what}: {answer}")
}
