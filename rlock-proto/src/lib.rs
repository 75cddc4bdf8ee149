//! The protocol of [`rlock-core`](https://docs.rs/rlock-core) without I/O: this crate makes all decisions of a client
//! of distributed locks, and leaves it to its caller to carry them out.
//!
//! It has no runtime, clock, socket, thread, random number or log, so a simulator can run the same code that ships. To
//! lock something, use `rlock-core`. Use this crate to build another shell around the same protocol, or to check it.
//! `quinn-proto` and the core of `rustls` do no I/O either, but are polled, read from and written to, whereas a machine
//! takes an input and returns outputs.
//!
//! # What goes in, and what comes out
//!
//! A client owns one [`Machine`](machine::Machine). Its shell passes each event as an [`Input`](machine::Input), with the time, and
//! carries out each [`Output`](machine::Output):
//!
//! | event | input | typical outputs |
//! | --- | --- | --- |
//! | a call asks for locks, or is polled | `Acquire`, `Poll` | one `Step`: send a request, wait, or the outcome |
//! | the store replies, or no reply comes | `Reply` | a `Step` of the call that sent the request, `Wake` for others |
//! | the store notifies the client | `Event` | `Wake` for the call that goes on, `Lost`, `Revoked` |
//! | a body has ended, or a call was dropped | `Leave`, `Cancel` | a `Step` of the call that ends, `Send` for a release, `Ended` |
//! | [`Machine::due`](machine::Machine::due) has come | `Time` | `Renew`, `Lost` |
//!
//! Any input may also wake other calls (`Wake`), or leave a request to the background (`Send`).
//!
//! The shell sends a [`Request`](machine::Request) to a store, whose interface the types of [`store`] describe. It
//! returns the request to the machine with the reply, or with a failure if no reply came within the request's
//! time-out; the shell keeps the timer for that. [`embedded`] implements the rules of such a store in memory, and
//! [`quorum`] combines several stores into one.
//!
//! # What never happens
//!
//! - Two exclusive holds of one key are never valid at once, as long as the store keeps what it replied and clocks
//!   differ by less than the margin of [`lease::valid_until`]. A lease counts from before its request was sent, so a
//!   late reply only makes it shorter, and cannot revive it.
//! - The machine never assumes that a request without a reply was not executed, even if its call fails. The request is *in doubt*, and
//!   the next request of the same owner, or its release, settles it. If a grant arrives after its caller gave up, the next call of the
//!   client uses the lock, or the machine releases it.
//! - The token of a hold is never smaller than that of an earlier hold of its key, as long as the store's fences grow.
//! - The machine never waits. Everything that has to happen later has a deadline, and `due` returns the next one.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! use rlock_proto::{
//!     few,
//!     key::Key,
//!     lease::Time,
//!     machine::{CallId, HoldEnd, Input, Machine, Output, Reply, Settings, Step, WantedLock},
//!     mode::LockMode,
//!     options::LockOptions,
//!     store::{Acquired, TOKENS},
//!     wait::Spread,
//! };
//!
//! let settings = Settings {
//!     response_timeout: Duration::from_secs(2),
//!     local_handovers: 16,
//!     counts_entries: true,
//!     replicas: false,
//!     needs_majority: false,
//!     fence_retention: Duration::from_secs(60),
//!     tokens: TOKENS,
//! };
//! let mut machine = Machine::new(settings, Spread(7));
//! let now = Time::from(Duration::from_secs(1));
//!
//! // A call asks for a lock, and the machine wants a request to be sent.
//! let key = Key::parse("order:42")?;
//! let acquire = Input::Acquire {
//!     call: CallId(1),
//!     locks: few::one(WantedLock { key, mode: LockMode::Exclusive }),
//!     inside: few::Few::new(),
//!     options: LockOptions::default(),
//!     runs_body: false,
//! };
//! let Some(Output::Step(Step::Send(request))) = machine.on(acquire, now).next() else {
//!     panic!("the first step is a request");
//! };
//!
//! // The store grants the lock with the fence 5.
//! let granted = Acquired::Granted { fences: few::one(5), wanted: false, sent_at: now };
//! let reply = Input::Reply(request, Reply::Acquired(granted));
//! let Some(Output::Step(Step::Entered(mut entered))) = machine.on(reply, now).next() else {
//!     panic!("a grant begins the hold");
//! };
//! let entered = entered.pop().expect("one key");
//! assert_eq!(entered.token, 5 * TOKENS);
//!
//! // The body has ended, and the background has to release the lock.
//! let (entry, end) = (entered.entry, HoldEnd::Released);
//! let mut outputs = machine.on(Input::Leave { entry, end, call: None }, now);
//! assert!(outputs.any(|output| matches!(output, Output::Send(_))));
//! # Ok::<(), rlock_proto::key::InvalidKey>(())
//! ```

pub mod embedded;
pub mod escape_control;
pub mod few;
pub mod key;
pub mod lease;
pub mod lost;
pub mod machine;
pub mod mode;
pub mod options;
pub mod owner;
pub mod quorum;
pub mod store;
pub mod wait;
