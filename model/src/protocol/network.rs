//! The messages in flight, which the model delivers, loses, repeats or reorders.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use crate::{
    machine::Input,
    owner::OwnerId,
    requests::{Answer, Body},
};

/// The number of a request, unique for its client.
pub(crate) type Id = u8;

/// A message in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// From a client to the server.
    Request {
        /// The client.
        from: u8,
        /// The number of the request.
        id: Id,
        /// The request.
        request: Body,
    },
    /// From the server to a client.
    Reply {
        /// The client.
        to: u8,
        /// The number of its request.
        id: Id,
        /// The reply.
        reply: Answer,
    },
    /// From the server to a client, without a request.
    Notification(u8, Input),
    /// From a holder to the resource.
    Write {
        /// The owner of the hold.
        owner: OwnerId,
        /// Its token.
        token: u64,
    },
}

impl Message {
    fn is_request(&self, client: u8, number: Id) -> bool {
        matches!(self, Self::Request { from, id, .. } if (*from, *id) == (client, number))
    }

    fn is_reply(&self, client: u8, number: Id) -> bool {
        matches!(self, Self::Reply { to, id, .. } if (*to, *id) == (client, number))
    }
}

/// The network: a bag of messages. It is in the order of their hashes, so that equal bags are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Network(Vec<Message>);

fn hash(message: &Message) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(message)
}

impl Network {
    pub(super) fn send(&mut self, message: Message) {
        let own = hash(&message);
        let at = self.0.partition_point(|other| hash(other) <= own);
        self.0.insert(at, message);
    }

    pub(super) fn take(&mut self, message: &Message) {
        if let Some(at) = self.0.iter().position(|other| other == message) {
            self.0.remove(at);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each message in flight, once.
    pub(super) fn messages(&self) -> impl Iterator<Item = &Message> {
        let repeats = |at: usize| at > 0 && self.0[at - 1] == self.0[at];
        self.0
            .iter()
            .enumerate()
            .filter(move |(at, _)| !repeats(*at))
            .map(|(_, message)| message)
    }

    /// Drops a reply that the client no longer awaits.
    pub(super) fn forget_reply(&mut self, client: u8, request: Id) {
        self.0.retain(|message| !message.is_reply(client, request));
    }

    /// Drops a request that was refused on its way.
    pub(super) fn forget_request(&mut self, client: u8, request: Id) {
        self.0
            .retain(|message| !message.is_request(client, request));
    }

    /// Drops the notifications for which this is false.
    pub(super) fn retain_notifications(&mut self, keep: impl Fn(u8, &Input) -> bool) {
        self.0.retain(
            |message| !matches!(message, Message::Notification(to, input) if !keep(*to, input)),
        );
    }

    /// Drops the replies and notifications to a client that has ended.
    pub(super) fn forget_client(&mut self, client: u8) {
        self.0.retain(|message| match message {
            Message::Reply { to, .. } | Message::Notification(to, _) => *to != client,
            Message::Request { .. } | Message::Write { .. } => true,
        });
    }

    /// Returns whether a request has not arrived yet.
    pub(super) fn is_on_its_way(&self, client: u8, request: Id) -> bool {
        let mut messages = self.0.iter();
        messages.any(|message| message.is_request(client, request))
    }

    /// Returns whether a request, or its reply, is in flight.
    pub(super) fn carries(&self, client: u8, request: Id) -> bool {
        let is_it =
            |one: &Message| one.is_request(client, request) || one.is_reply(client, request);
        self.0.iter().any(is_it)
    }

    /// Returns the oldest request of a client in flight.
    pub(super) fn oldest(&self, client: u8) -> Option<Id> {
        let own = self.0.iter().filter_map(|message| match message {
            Message::Request { from, id, .. } if *from == client => Some(*id),
            _ => None,
        });
        own.min()
    }
}
