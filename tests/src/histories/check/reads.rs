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
    if history.forgotten(key, reader.earliest, write.at) || is_of_another_master {
        findings.other_by_nature(Property::NoTornRead, what);
    } else {
        findings.breaks(Property::NoTornRead, what);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::sample::{Sample, broken},
        Property,
    };

    /// Returns a history with a reader from 10 to 40 ms that reads at 20 ms, and a write at this time.
    fn written(token: u64, at: u64) -> Sample {
        let mut sample = Sample::default();
        sample
            .hold("a:1s/3/0", 3)
            .called(0, 10, 105)
            .shares()
            .left(40);
        if at < 20 {
            sample.wrote("b:1", token, at, true);
        }
        sample.read("a:1s/3/0", 3, 20, true);
        if at >= 20 {
            sample.wrote("b:1", token, at, true);
        }
        sample
    }

    #[test]
    fn a_write_while_a_reader_reads_is_found() {
        assert_eq!(broken(&written(4, 39)), [Property::NoTornRead]);
        assert_eq!(written(4, 40).violations(), []);
    }

    #[test]
    fn a_write_beside_a_permit_is_found() {
        let mut sample = Sample::default();
        sample.hold("a:1.3p", 3).called(0, 10, 105).permit_of(3);
        sample.read("a:1.3p", 3, 20, true);
        sample.wrote("b:1", 4, 30, true);
        assert_eq!(broken(&sample), [Property::NoTornRead]);
    }

    #[test]
    fn a_writer_that_shares_its_lock_reads_what_it_wrote() {
        let mut sample = Sample::default();
        let writer = sample.hold("a:1/3", 3).called(0, 10, 105);
        writer.downgraded(20).left(40);
        sample.wrote("a:1/3", 3, 15, true);
        sample.read("a:1/3", 3, 25, true);
        assert_eq!(sample.violations(), []);
        sample.wrote("b:1", 4, 30, true);
        assert_eq!(broken(&sample), [Property::NoTornRead]);
    }

    #[test]
    fn a_write_after_the_lock_was_forgotten_is_by_nature() {
        let mut sample = Sample::default();
        sample.hold("a:1s/3/0", 3).called(0, 10, 105).shares();
        sample.read("a:1s/3/0", 3, 20, true);
        sample.flushed(25, 26);
        sample.wrote("b:1", 4, 30, true);
        assert_eq!(sample.violations(), []);
        assert_eq!(sample.findings().others_by_nature, 1);
    }
}
