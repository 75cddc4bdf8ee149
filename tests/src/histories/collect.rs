//! Collects records, for the file and for the checks.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
    sync::mpsc,
    thread::{self, JoinHandle},
};

use super::{history::History, record::Record};

/// A handle that records from anywhere. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Recorder(mpsc::Sender<Record>);

impl Recorder {
    pub(super) fn note(&self, record: Record) {
        // The receiver is gone after the run.
        let _ = self.0.send(record);
    }
}

/// The thread that writes the records.
pub(super) struct Collector {
    sender: mpsc::Sender<Record>,
    thread: JoinHandle<History>,
}

impl Collector {
    /// `out`: the path of the file, if any.
    pub(super) fn start(out: Option<&Path>) -> Self {
        let mut file = out.map(|path| {
            let file = File::create(path);
            BufWriter::new(
                file.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display())),
            )
        });
        let (sender, records) = mpsc::channel::<Record>();
        let thread = thread::spawn(move || {
            let mut history = History::default();
            for record in records {
                if let Some(file) = &mut file {
                    let line = serde_json::to_string(&record).expect("records are plain data");
                    writeln!(file, "{line}").expect("the history can be written");
                }
                let over = matches!(record, Record::Over { .. });
                history.add(record);
                if over {
                    break;
                }
            }
            if let Some(mut file) = file {
                file.flush().expect("the history can be written");
            }
            history
        });
        Self { sender, thread }
    }

    pub(super) fn recorder(&self) -> Recorder {
        Recorder(self.sender.clone())
    }

    /// Returns all records up to [`Record::Over`].
    pub(super) fn finish(self) -> History {
        drop(self.sender);
        self.thread.join().expect("the collector does not panic")
    }
}
