//! Tests of the machine: single inputs and their outputs.

use std::{fs, path::Path};

mod cases;

#[test]
fn the_machine_has_no_io_time_threads_or_locks() {
    const FOREIGN: [&str; 14] = [
        "async ",
        ".await",
        "tokio",
        "Mutex",
        "Atomic",
        "Arc<",
        "Instant",
        "SystemTime",
        "fastrand",
        "tracing",
        "metrics",
        "thread",
        "Waker",
        "std::io",
    ];
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine");
    let rooms = fs::read_dir(engine.join("machine")).expect("a folder");
    let rooms = rooms.map(|room| room.expect("readable").path());
    let files = rooms.filter(|room| room.is_file() && !room.ends_with("tests.rs"));
    let files: Vec<_> = files.chain([engine.join("machine.rs")]).collect();
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for (line, word) in code.flat_map(|line| FOREIGN.map(|word| (line, word))) {
            assert!(!line.contains(word), "{word} in {}: {line}", file.display());
        }
    }
}
