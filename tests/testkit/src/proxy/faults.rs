//! What a proxy can be told to do.

use std::time::Duration;

use super::control::Flow;
use super::{Proxy, Request};
use crate::RedisServer;

impl Proxy {
    /// Ends every fault. Connections that have lost bytes are reset; bytes that were held pass now.
    pub fn pass(&self) {
        self.control.clear();
    }

    /// Swallows everything in both directions, and accepts new connections all the same: a server
    /// that is gone behind a network that does not say so.
    pub fn black_hole(&self) {
        self.flows(Flow::Swallow, Flow::Swallow);
    }

    /// Swallows everything on all present connections, and lets new ones pass: the machine at the
    /// other end is gone without a word, and another has taken its place.
    pub fn half_open(&self) {
        let begun = self.control.connections();
        self.control
            .weather
            .send_modify(|weather| weather.silent_before = begun);
    }

    /// Swallows everything on every second connection, be it there or new, until [`pass`](Self::pass): one of
    /// two ways to the server leads nowhere.
    pub fn silence_every_second(&self) {
        self.control
            .weather
            .send_modify(|weather| weather.every_second_is_silent = true);
    }

    /// Leads new connections to another server, as a name or an address does after a failover.
    /// Present ones stay where they are: add [`reset`](Self::reset) to end them.
    pub fn lead_to(&self, server: &RedisServer) {
        self.control
            .weather
            .send_modify(|weather| weather.target = server.address().into());
    }

    /// Swallows what clients send, and passes what the server sends.
    pub fn black_hole_requests(&self) {
        self.flows(Flow::Swallow, Flow::Pass);
    }

    /// Passes what clients send, and swallows what the server sends: commands run, and no reply arrives.
    pub fn black_hole_replies(&self) {
        self.flows(Flow::Pass, Flow::Swallow);
    }

    /// Holds everything in both directions until [`pass`](Self::pass), which delivers it late, as TCP
    /// does when an outage ends.
    pub fn hold(&self) {
        self.flows(Flow::Hold, Flow::Hold);
    }

    /// Holds what clients send until [`pass`](Self::pass): commands that run late.
    pub fn hold_requests(&self) {
        self.flows(Flow::Hold, Flow::Pass);
    }

    /// Holds what the server sends until [`pass`](Self::pass).
    pub fn hold_replies(&self) {
        self.flows(Flow::Pass, Flow::Hold);
    }

    /// Loses the next `count` replies. Each loss cuts its connection at once, so `count` attempts in a
    /// row fail; whatever the connection had passed before still arrives.
    ///
    /// Pushes of RESP3 and messages of subscriptions are no replies: they pass and do not count. The
    /// last confirmation of a SUBSCRIBE is its reply.
    pub fn drop_replies(&self, count: u64) {
        self.drop_replies_if(count, |_| true);
    }

    /// Loses the next `count` replies to requests that begin with `command`, e.g. `"EVALSHA"` or
    /// `"CLIENT TRACKING"`. As [`drop_replies`](Self::drop_replies) otherwise: the command has run.
    pub fn drop_replies_to(&self, command: &str, count: u64) {
        let command = command.to_owned();
        self.drop_replies_if(count, move |request| request.is(&command));
    }

    /// Loses the next `count` replies to requests that `matches` picks.
    pub fn drop_replies_if(&self, count: u64, matches: impl Fn(&Request) -> bool + Send + 'static) {
        self.control.lose_replies(0, count, Box::new(matches));
    }

    /// Loses one reply: the one after the next `number - 1` to requests that begin with `command`.
    pub fn drop_reply_number(&self, number: u64, command: &str) {
        let command = command.to_owned();
        let matches = move |request: &Request| request.is(&command);
        self.control
            .lose_replies(number.saturating_sub(1), 1, Box::new(matches));
    }

    /// Loses the next `count` requests: the server never sees them. Each loss cuts its connection, so
    /// for the client it looks like a lost reply.
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
        self.control.lose_requests(0, count, Box::new(matches));
    }

    /// Loses one request: the one after the next `number - 1` that begin with `command`.
    pub fn drop_request_number(&self, number: u64, command: &str) {
        let command = command.to_owned();
        let matches = move |request: &Request| request.is(&command);
        self.control
            .lose_requests(number.saturating_sub(1), 1, Box::new(matches));
    }

    /// Delivers whatever the server sends from now on this much later. Several on
    /// their way at once are each as late, not one after another.
    pub fn delay_replies(&self, delay: Duration) {
        self.control
            .weather
            .send_modify(|weather| weather.replies.delay = delay);
    }

    /// Delivers whatever clients send from now on this much later: commands that run late.
    pub fn delay_requests(&self, delay: Duration) {
        self.control
            .weather
            .send_modify(|weather| weather.requests.delay = delay);
    }

    /// Passes the next `bytes` bytes of the server, then cuts the connection that got the last of them.
    pub fn cut_after_bytes(&self, bytes: usize) {
        self.control.cut_replies_after(bytes);
    }

    /// Passes the next `bytes` bytes of the clients, then cuts the connection that sent the last of
    /// them. A request that is cut in two does not run.
    pub fn cut_requests_after_bytes(&self, bytes: usize) {
        self.control.cut_requests_after(bytes);
    }

    /// Resets all present connections (TCP RST). New ones pass.
    pub fn reset(&self) {
        self.control
            .weather
            .send_modify(|weather| weather.resets += 1);
    }

    /// Ends all present connections towards the client (TCP FIN), yet goes on passing what it sends.
    pub fn half_close(&self) {
        self.control
            .weather
            .send_modify(|weather| weather.replies.half_closes += 1);
    }

    /// Ends all present connections towards the server (TCP FIN), yet goes on passing what it sends.
    pub fn half_close_requests(&self) {
        self.control
            .weather
            .send_modify(|weather| weather.requests.half_closes += 1);
    }

    /// Closes every new connection at once. Present ones go on: add [`reset`](Self::reset) to end them.
    pub fn refuse(&self) {
        self.control
            .weather
            .send_modify(|weather| weather.refuse = true);
    }

    /// How many replies have been lost by `drop_replies…`.
    #[must_use]
    pub fn replies_lost(&self) -> u64 {
        self.control.replies_lost()
    }

    /// How many requests have been lost by `drop_requests…`.
    #[must_use]
    pub fn requests_lost(&self) -> u64 {
        self.control.requests_lost()
    }

    /// Every whole request that arrived here so far, lost ones included.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.control.requests()
    }

    /// How many requests that begin with `command` arrived here so far.
    #[must_use]
    pub fn requests_of(&self, command: &str) -> u64 {
        self.requests()
            .iter()
            .filter(|request| request.is(command))
            .count() as u64
    }

    fn flows(&self, requests: Flow, replies: Flow) {
        self.control.weather.send_modify(|weather| {
            weather.requests.flow = requests;
            weather.replies.flow = replies;
        });
    }
}
