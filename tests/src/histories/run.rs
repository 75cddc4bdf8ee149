//! A run: starts everything, applies faults for the given time, looks for leftovers, and checks the
//! history.

use std::{
    fs,
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{sync::watch, task::JoinSet, time::sleep};

use super::{
    clock,
    collect::{Collector, Recorder},
    ground::Ground,
    memory,
    options::{Kind, Options},
    record::{Record, Run},
    report::Report,
    resource,
    schedule::Schedule,
    slot::{Order, Slot, Way},
};

pub(super) fn main(options: &Options) -> Report {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let report = runtime.block_on(run(options));
    if let Some(parent) = options.report.parent() {
        let _ = fs::create_dir_all(parent);
    }
    fs::write(&options.report, report.json())
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", options.report.display()));
    report
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
    let collector = Collector::start(options.out.as_deref());
    let recorder = collector.recorder();
    let order = Order {
        resource: resource::open(&recorder),
        seed,
        keys: options.keys,
        clients: match options.store {
            Kind::Memory => options.processes,
            _ => 1,
        },
        tasks: options.tasks,
        replicas: options.replicas,
        recorder: recorder.clone(),
        started: Arc::new(AtomicU32::new(0)),
    };
    let about = |server| {
        Record::Run(Run {
            seed,
            store: options.store,
            server,
            seconds: options.seconds,
            processes: options.processes,
            tasks: options.tasks,
            keys: options.keys,
            floor: options.floor(),
            replicas: options.replicas,
            at: clock::now(),
        })
    };
    match options.store {
        Kind::Memory => {
            recorder.note(about(None));
            memory::run(options, order, schedule).await;
        }
        store => {
            let (ground, way) = Ground::start(store).await;
            recorder.note(about(Some(ground.version().await)));
            on_servers(options, order, schedule, (ground, way), &recorder).await;
        }
    }
    recorder.note(Record::Over { at: clock::now() });
    Report::on(&collector.finish())
}

fn schedule(options: &Options, seed: u64) -> Schedule {
    let lasts = Duration::from_secs(options.seconds);
    let of = match options.store {
        Kind::Redis => Schedule::of_servers,
        Kind::Sentinel => Schedule::of_sentinels,
        Kind::Quorum => Schedule::of_quorum,
        Kind::Cluster => Schedule::of_cluster,
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
        let slot = Slot::open(order.clone(), way.clone()).await;
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
