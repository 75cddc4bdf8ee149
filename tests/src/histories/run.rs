//! A run: starts everything, lets faults strike for as long as it is told, looks for what is left, and checks.

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
    memory,
    options::{Kind, Options},
    outage::{self, Server},
    record::{Record, Run},
    report::Report,
    resource,
    schedule::Schedule,
    slot::{Order, Slot, Way},
    watch as eye,
};
use crate::leftovers;

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
    let lasts = Duration::from_secs(options.seconds);
    let schedule = match options.store {
        Kind::Redis => {
            let schedule = Schedule::of_servers(seed, lasts, options.processes, options.keys);
            if options.keep_data {
                schedule.without_losses()
            } else {
                schedule
            }
        }
        Kind::Sentinel => {
            let schedule = Schedule::of_sentinels(seed, lasts, options.processes, options.keys);
            if options.keep_data {
                schedule.without_losses()
            } else {
                schedule
            }
        }
        Kind::Memory => Schedule::embedded(seed, lasts),
    };
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
            Kind::Redis | Kind::Sentinel => 1,
            Kind::Memory => options.processes,
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
        Kind::Redis => {
            let server = Arc::new(Server::start());
            recorder.note(about(Some(version(&server).await)));
            let way = Way::Proxied(Arc::clone(&server));
            on_a_server(options, order, schedule, (server, way), &recorder).await;
        }
        Kind::Sentinel => {
            let (server, url) = Server::start_with_sentinels().await;
            let server = Arc::new(server);
            recorder.note(about(Some(version(&server).await)));
            on_a_server(
                options,
                order,
                schedule,
                (server, Way::Direct(url)),
                &recorder,
            )
            .await;
        }
    }
    recorder.note(Record::Over { at: clock::now() });
    Report::on(&collector.finish())
}

async fn on_a_server(
    options: &Options,
    order: Order,
    schedule: Schedule,
    (server, way): (Arc<Server>, Way),
    recorder: &Recorder,
) {
    let eye = eye::watch(Arc::clone(&server), options.keys, recorder.clone());
    let eye = tokio::spawn(eye);
    let (over, is_over) = watch::channel(false);
    let mut faults = JoinSet::new();
    faults.spawn(outage::strike(
        Arc::clone(&server),
        schedule.server,
        recorder.clone(),
        is_over.clone(),
    ));
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
    // The last ones may take a little longer than was planned.
    while let Some(done) = faults.join_next().await {
        done.expect("faults do not panic");
    }
    for (slot, _) in &mut slots {
        slot.stop().await;
    }
    let redis = server.up().await;
    let note = |leftovers: Vec<String>| {
        for what in leftovers {
            recorder.note(Record::Leftover { what });
        }
    };
    note(leftovers::of_idle_clients(&redis, slots.len()).await);
    for (slot, _) in &mut slots {
        slot.end().await;
    }
    eye.abort();
    // What it saw last is recorded when it is dropped.
    let _ = eye.await;
    tokio::task::block_in_place(|| drop(slots));
    note(leftovers::of_nobody(&redis).await);
}

async fn version(server: &Server) -> String {
    let info: String = server.up().await.command(&["INFO", "server"]).await;
    let version = info
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    format!("redis {}", version.unwrap_or("of unknown version").trim())
}
