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
    use super::super::sample::check_cases;

    const CASES: &str = "
        # a write while a reader reads is found
        hold a:1s/3/0 3 0 10 105 shares left 40; read a:1s/3/0 3 20; wrote b:1 4 39
        => NoTornRead
        # a write after it is none
        hold a:1s/3/0 3 0 10 105 shares left 40; read a:1s/3/0 3 20; wrote b:1 4 40
        => nothing
        # a write that overlaps a permit is found
        hold a:1.3p 3 0 10 105 permits 3; read a:1.3p 3 20; wrote b:1 4 30
        => NoTornRead
        # a writer that shares its lock reads what it wrote
        hold a:1/3 3 0 10 105 downgraded 20 left 40; wrote a:1/3 3 15; read a:1/3 3 25
        => nothing
        wrote b:1 4 30
        => NoTornRead
        # a write after the lock was forgotten is by nature
        hold a:1s/3/0 3 0 10 105 shares; read a:1s/3/0 3 20; flushed 25 26; wrote b:1 4 30
        => nothing others 1
    ";

    #[test]
    fn torn_reads_are_found() {
        check_cases(CASES);
    }
}
