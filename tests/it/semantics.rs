//! What locks and annotated functions do, where the kind of store does not matter.

mod asked;
mod attribute;
mod blocking;
mod cancellation;
mod current_hold;
mod depth;
mod drain;
mod durations;
mod election;
mod environment;
mod fence;
mod kept;
mod key;
mod list;
mod lock_all;
mod min_hold;
mod once;
mod options;
mod outage;
mod own_holder;
mod reentry;
mod release;
mod retention;
mod signatures;
mod testing;
mod urls;
