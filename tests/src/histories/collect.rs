//! Collects records, for the file and for the checks.

use std::{
    fs::{self, File},
    io::{BufWriter, ErrorKind, Write as _},
    path::{Path, PathBuf},
    sync::mpsc,
    thread::{self, JoinHandle},
};

use super::{history::History, options::Options, record::Record, text};

/// Where histories are kept, below the working directory.
const DIRECTORY: &str = "target/histories";

/// The file of a history.
pub(super) struct Place {
    path: PathBuf,
    /// Whether the file is kept even if the history shows nothing.
    is_asked_for: bool,
}

impl Place {
    /// Creates the file that the options name, or a new one for this store and seed below `base`.
    pub(super) fn create(options: &Options, seed: u64, base: &Path) -> (Self, File) {
        let (path, file) = match &options.out {
            Some(path) => (path.clone(), File::create(path)),
            None => create_new(&base.join(DIRECTORY), &format!("{}-{seed}", options.store)),
        };
        let file = file.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        let is_asked_for = options.out.is_some();
        (Self { path, is_asked_for }, file)
    }

    /// Returns the path, or deletes the file and returns `None` if it is not needed.
    pub(super) fn keep(self, is_needed: bool) -> Option<PathBuf> {
        if is_needed || self.is_asked_for {
            return Some(self.path);
        }
        // A file that stays does no harm.
        let _ = fs::remove_file(&self.path);
        None
    }
}

/// Creates the first file of this name that does not exist, so that no run replaces the history of another.
fn create_new(directory: &Path, name: &str) -> (PathBuf, std::io::Result<File>) {
    let _ = fs::create_dir_all(directory);
    let mut path = directory.join(name);
    for number in 2.. {
        match File::create_new(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                path = directory.join(format!("{name}-{number}"));
            }
            created => return (path, created),
        }
    }
    unreachable!("there are more numbers than files")
}

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
    pub(super) fn start(file: File) -> Self {
        let mut file = BufWriter::new(file);
        let (sender, records) = mpsc::channel::<Record>();
        let thread = thread::spawn(move || {
            let mut history = History::default();
            for record in records {
                writeln!(file, "{}", text::write(&record)).expect("the history can be written");
                let over = matches!(record, Record::Over { .. });
                history.add(record);
                if over {
                    break;
                }
            }
            file.flush().expect("the history can be written");
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
