//! The faults that a proxy can produce.

use std::{sync::atomic::Ordering, time::Duration};

use super::control::{Flow, Weather};
use super::{Proxy, Request};
use crate::RedisServer;

impl Proxy {
    /// Ends every fault. Connections that have lost bytes are reset, and held bytes are delivered.
    pub fn pass(&self) {
        self.control.clear();
    }

    /// Swallows everything in both directions, but accepts new connections: the server is gone, and
    /// the network does not report it.
    pub fn black_hole(&self) {
        self.flows(Flow::Swallow, Flow::Swallow);
    }

    /// Swallows everything on all present connections, and passes new ones: the server's machine
    /// was replaced without closing its connections.
    pub fn half_open(&self) {
        let begun = self.control.connections();
        self.change(|weather| weather.silent_before = begun);
    }

    /// Swallows everything on every second connection, old or new, until [`pass`](Self::pass). It
    /// is as if one of two routes to the server failed.
    pub fn silence_every_second(&self) {
        self.change(|weather| weather.every_second_is_silent = true);
    }

    /// Leads new connections to another server, as DNS does after a failover. Present connections
    /// stay: add [`reset`](Self::reset) to end them.
    pub fn lead_to(&self, server: &RedisServer) {
        self.change(|weather| weather.target = server.address().into());
    }

    /// Swallows the requests, and passes the replies.
    pub fn black_hole_requests(&self) {
        self.flows(Flow::Swallow, Flow::Pass);
    }

    /// Passes the requests, and swallows the replies: commands run without a reply.
    pub fn black_hole_replies(&self) {
        self.flows(Flow::Pass, Flow::Swallow);
    }

    /// Holds everything in both directions until [`pass`](Self::pass), which delivers it late, as
    /// TCP does after an outage.
    pub fn hold(&self) {
        self.flows(Flow::Hold, Flow::Hold);
    }

    /// Holds the requests until [`pass`](Self::pass), so that commands run late.
    pub fn hold_requests(&self) {
        self.flows(Flow::Hold, Flow::Pass);
    }

    /// Like [`hold_requests`](Self::hold_requests), for the connection with this number. They count from 0 in the order in which
    /// clients opened them.
    pub fn hold_requests_of(&self, connection: u64) {
        self.control.holds.store(false, Ordering::SeqCst);
        self.change(|weather| weather.requests.held = Some(connection));
    }

    /// Returns how many connections clients have opened.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.control.connections()
    }

    /// Returns whether bytes have arrived that are held.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.control.holds.load(Ordering::SeqCst)
    }

    /// Holds the replies until [`pass`](Self::pass).
    pub fn hold_replies(&self) {
        self.flows(Flow::Pass, Flow::Hold);
    }

    /// Loses the next `count` replies. Each loss closes its connection, so `count` attempts in a
    /// row fail. Earlier bytes of the connection still arrive.
    ///
    /// RESP3 pushes and messages of subscriptions are not replies: they pass without counting. The
    /// last confirmation of a SUBSCRIBE is its reply.
    pub fn drop_replies(&self, count: u64) {
        self.drop_replies_if(count, |_| true);
    }

    /// Loses the next `count` replies to requests that `matches` picks.
    pub fn drop_replies_if(&self, count: u64, matches: impl Fn(&Request) -> bool + Send + 'static) {
        self.control.lose_replies(count, Box::new(matches));
    }

    /// Loses the next `count` requests before they reach the server. Each loss closes its
    /// connection, which looks like a lost reply to the client.
    pub fn drop_requests(&self, count: u64) {
        self.drop_requests_if(count, |_| true);
    }

    /// Loses the next `count` requests that begin with `command`.
    pub fn drop_requests_to(&self, command: &str, count: u64) {
        let command = command.to_owned();
        self.drop_requests_if(count, move |request| request.is(&command));
    }

    /// Loses the next `count` requests that `matches` picks.
    pub fn drop_requests_if(
        &self,
        count: u64,
        matches: impl Fn(&Request) -> bool + Send + 'static,
    ) {
        self.control.lose_requests(count, Box::new(matches));
    }

    /// Delays the replies from now on. Replies on their way at the same time are all delayed by
    /// this much.
    pub fn delay_replies(&self, delay: Duration) {
        self.change(|weather| weather.replies.delay = delay);
    }

    /// Delays the requests from now on, so that commands run late.
    pub fn delay_requests(&self, delay: Duration) {
        self.change(|weather| weather.requests.delay = delay);
    }

    /// Passes the next `bytes` bytes of replies, then closes the connection that received the last
    /// byte.
    pub fn cut_after_bytes(&self, bytes: usize) {
        self.control.cut_replies_after(bytes);
    }

    /// Resets all present connections (TCP RST). New ones pass.
    pub fn reset(&self) {
        self.change(|weather| weather.resets += 1);
    }

    /// Closes all present connections towards the client (TCP FIN), but still passes the client's
    /// bytes.
    pub fn half_close(&self) {
        self.change(|weather| weather.replies.half_closes += 1);
    }

    /// Closes every new connection at once. Present ones stay: add [`reset`](Self::reset) to end
    /// them.
    pub fn refuse(&self) {
        self.change(|weather| weather.refuse = true);
    }

    /// Resets all present connections, and closes every new one.
    pub fn cut_off(&self) {
        self.refuse();
        self.reset();
    }

    /// Returns how many replies `drop_replies…` has lost.
    #[must_use]
    pub fn replies_lost(&self) -> u64 {
        self.control.replies_lost()
    }

    /// Returns how many requests `drop_requests…` has lost.
    #[must_use]
    pub fn requests_lost(&self) -> u64 {
        self.control.requests_lost()
    }

    /// Returns every whole request so far, including lost ones.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.control.requests()
    }

    /// Returns how many requests so far begin with `command`.
    #[must_use]
    pub fn requests_of(&self, command: &str) -> u64 {
        self.requests()
            .iter()
            .filter(|request| request.is(command))
            .count() as u64
    }

    fn flows(&self, requests: Flow, replies: Flow) {
        self.change(|weather| {
            weather.requests.flow = requests;
            weather.replies.flow = replies;
        });
    }

    fn change(&self, change: impl FnOnce(&mut Weather)) {
        self.control.weather.send_modify(change);
    }
}
