//! A run: starts everything, applies faults for the given time, looks for leftovers, and checks the
//! history.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{sync::watch, task::JoinSet, time::sleep};

use super::{
    clock,
    collect::{Collector, Place, Recorder},
    ground::Ground,
    memory,
    options::{ClientOptions, Kind, Options},
    record::{Record, Run},
    report::Report,
    resource,
    schedule::Schedule,
    slot::{Order, Slot, Way},
};

pub(super) fn main(options: &Options) -> Report {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run(options))
}

async fn run(options: &Options) -> Report {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let schedule = schedule(options, seed);
    println!(
        "store {}, seed {seed}, {} s, {} processes with {} tasks each, {} keys, {} faults from outside",
        options.store,
        options.seconds,
        options.processes,
        options.tasks,
        options.keys,
        schedule.len()
    );
    let (place, file) = Place::create(options, seed, Path::new(""));
    let collector = Collector::start(file);
    let recorder = collector.recorder();
    let order = Order {
        options: ClientOptions {
            urls: Vec::new(),
            resource: resource::open(&recorder),
            process: 0,
            seed,
            keys: options.keys,
            clients: match options.store {
                Kind::Memory => options.processes,
                _ => 1,
            },
            tasks: options.tasks,
            replicas: options.replicas,
        },
        recorder: recorder.clone(),
        started: Arc::new(AtomicU32::new(0)),
    };
    let about = |server: String| {
        Record::Run(Run {
            seed,
            store: options.store.to_string(),
            server,
            seconds: options.seconds,
            floor: options.floor(),
            replicas: options.replicas,
        })
    };
    match options.store {
        Kind::Memory => {
            recorder.note(about("embedded".to_owned()));
            memory::run(options, order, schedule).await;
        }
        store => {
            let (ground, way) = Ground::start(store).await;
            recorder.note(about(ground.version().await));
            on_servers(options, order, schedule, (ground, way), &recorder).await;
        }
    }
    recorder.note(Record::Over { at: clock::now() });
    conclude(collector, place)
}

/// Checks the history, and keeps its file if there is anything to look at in it.
fn conclude(collector: Collector, place: Place) -> Report {
    let report = Report::on(&collector.finish());
    match place.keep(report.has_cases()) {
        Some(path) => report.kept_in(path),
        None => report,
    }
}

fn schedule(options: &Options, seed: u64) -> Schedule {
    let lasts = Duration::from_secs(options.seconds);
    let of = match options.store {
        Kind::Redis => Schedule::of_servers,
        Kind::Sentinel => Schedule::of_sentinels,
        Kind::Quorum => Schedule::of_quorum,
        Kind::Cluster => Schedule::of_cluster,
        Kind::Postgres => Schedule::of_postgres,
        Kind::Memory => return Schedule::embedded(seed, lasts),
    };
    let schedule = of(seed, lasts, options.processes, options.keys);
    if options.keep_data {
        schedule.without_losses()
    } else {
        schedule
    }
}

async fn on_servers(
    options: &Options,
    order: Order,
    schedule: Schedule,
    (ground, way): (Ground, Way),
    recorder: &Recorder,
) {
    let mut eyes = JoinSet::new();
    ground.watch(&mut eyes, options.keys, recorder);
    let (over, is_over) = watch::channel(false);
    let mut faults = JoinSet::new();
    for lane in schedule.servers {
        ground.strike(&mut faults, lane, recorder, &is_over);
    }
    ground.strike_fronts(&mut faults, schedule.fronts, recorder, &is_over);
    let mut slots = Vec::new();
    for (process, network) in schedule.processes.into_iter().zip(schedule.networks) {
        let slot = Slot::open(order.clone(), way.clone());
        faults.spawn(slot.strike_network(network));
        slots.push((slot, process));
    }
    let strikes = slots
        .iter_mut()
        .map(|(slot, process)| slot.strike(std::mem::take(process), is_over.clone()));
    let end = async {
        sleep(Duration::from_secs(options.seconds)).await;
        over.send_replace(true);
    };
    tokio::join!(join_all(strikes), end);
    // The last faults may take a little longer than planned.
    while let Some(done) = faults.join_next().await {
        done.expect("faults do not panic");
    }
    for (slot, _) in &mut slots {
        slot.stop().await;
    }
    let note = |leftovers: Vec<String>| {
        for what in leftovers {
            recorder.note(Record::Leftover { what });
        }
    };
    note(ground.left_by_idle_clients(slots.len()).await);
    for (slot, _) in &mut slots {
        slot.end().await;
    }
    // Dropping the observers records their last sightings.
    eyes.shutdown().await;
    tokio::task::block_in_place(|| drop(slots));
    note(ground.left_without_holder().await);
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use clap::Parser as _;

    use super::*;
    use crate::histories::{history::History, text::Reader};

    /// A directory that is deleted with the test.
    struct Base(PathBuf);

    impl Drop for Base {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl Base {
        fn new(name: &str) -> Self {
            let name = format!("rlock-kept-{}-{name}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        /// Returns the report on a run with these records, and the names of the kept files.
        fn run(&self, lines: &[&str]) -> (Report, Vec<String>) {
            let options = Options::parse_from(["histories", "--store", "sentinel"]);
            let (place, file) = Place::create(&options, 7, &self.0);
            let collector = Collector::start(file);
            for line in lines {
                let record = Reader::default().read(line).expect("a record");
                collector.recorder().note(record.expect("a record"));
            }
            collector.recorder().note(Record::Over { at: 0 });
            let report = conclude(collector, place);
            let kept = fs::read_dir(self.0.join("target/histories")).expect("a directory");
            let names = kept.map(|file| file.expect("a file").file_name());
            let mut names: Vec<String> = names
                .map(|name| name.into_string().expect("a plain name"))
                .collect();
            names.sort();
            (report, names)
        }
    }

    const READER: &str = "call verb=acquire outcome=granted process=1 key=k mode=shared owner=a:1s/10/0 token=10 lease=100 asked=0 at=5 until=6";
    const WRITER: &str = "call verb=acquire outcome=granted process=2 key=k mode=exclusive owner=b:1/10 token=10 lease=100 asked=0 at=7 until=8";
    const TWO_MASTERS: &str = "fault kind=master_unseen start=0 end=9";

    #[test]
    fn the_history_of_a_violation_is_kept() {
        let base = Base::new("violation");
        let (report, kept) = base.run(&[READER, WRITER]);
        assert!(report.violated());
        assert_eq!(kept, ["sentinel-7"]);
        let path = base.0.join("target/histories/sentinel-7");
        let last = report.to_string();
        let last = last.lines().last().expect("a line");
        assert_eq!(last, format!("history: {}", path.display()));
        let again = fs::read_to_string(&path).expect("a text");
        let again = History::read(&again).expect("a history");
        assert!(Report::on(&again).violated());
    }

    #[test]
    fn the_history_of_an_excused_case_is_kept_and_the_last_lines_say_which() {
        let base = Base::new("excused");
        let (report, kept) = base.run(&[TWO_MASTERS, READER, WRITER]);
        assert!(!report.violated(), "{report}");
        assert_eq!(kept, ["sentinel-7"]);
        let text = report.to_string();
        let (_, last) = text.split_once("history: ").expect("the file is named");
        assert!(last.contains("TokensGrow: 2 excused"), "{text}");
        assert!(
            last.contains("  TokensGrow: k: a:1s/10/0 (token 10"),
            "{text}"
        );
        assert!(last.contains("the same token"), "{text}");
    }

    #[test]
    fn a_kept_history_is_never_replaced_and_one_without_a_case_is_deleted() {
        let base = Base::new("replaced");
        for _ in 0..2 {
            base.run(&[READER, WRITER]);
        }
        let (report, kept) = base.run(&[READER]);
        assert_eq!(kept, ["sentinel-7", "sentinel-7-2"]);
        assert!(!report.to_string().contains("history: "), "{report}");
    }
}
