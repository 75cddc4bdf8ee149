//! Nothing is written while a reader relies on its lock.
//!
//! From the first read of a holder that does not write until the end of its reliance, the resource
//! accepts no write. So all reads of that time see the same data. The holder of a permit reads, too.
//!
//! A write of an earlier holder may arrive before the first read. The resource refuses it after that
//! read, whose token is larger.

use std::collections::HashMap;

use super::{Findings, Property};
use crate::histories::{
    clock::ms,
    history::{History, Hold, Lock},
    record::{Access, AccessKind},
};

pub(super) fn check(history: &History, findings: &mut Findings) {
    for (key, lock) in &history.locks {
        let mut readers: HashMap<&str, (&Hold, u64)> = HashMap::new();
        for access in lock.accesses.iter().filter(|access| access.accepted) {
            match access.kind {
                AccessKind::Read => {
                    if let Some(hold) = lock.hold(&access.owner) {
                        let end = history.reliance_end(hold);
                        readers.entry(&access.owner).or_insert((hold, end));
                    }
                }
                AccessKind::Write => {
                    readers.retain(|_, (_, end)| *end > access.at);
                    for (reader, end) in readers.values() {
                        torn(history, (key, lock), (reader, *end), access, findings);
                    }
                }
            }
        }
    }
}

fn torn(
    history: &History,
    (key, lock): (&str, &Lock),
    (reader, end): (&Hold, u64),
    write: &Access,
    findings: &mut Findings,
) {
    let writer = lock.hold(&write.owner);
    let is_of_another_master = writer.is_some_and(|writer| history.led_by_two(reader, writer));
    let what = format!(
        "{key}: a write of {} (token {}, {} ms) was accepted while {} read (token {}, {} to {} ms)",
        write.owner,
        write.token,
        ms(write.at),
        reader.owner,
        reader.token,
        ms(reader.granted),
        ms(end)
    );
    let is_excused = history.forgotten(key, reader.earliest, write.at) || is_of_another_master;
    findings.other(is_excused, Property::NoTornRead, what);
}
