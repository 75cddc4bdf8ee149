//! A client process: several tasks that acquire locks in all possible ways, and write to the
//! resource inside.
//!
//! It prints its records, one on a line. After `stop` on its input it finishes its calls and prints
//! `idle`. At the end of its input it shuts its clients down and ends.

mod caller;
mod clients;
mod cut;
mod eye;
mod operator;
mod section;
mod session;
mod terms;

use std::{
    io::{BufRead as _, stdin},
    sync::Arc,
    thread,
};

use tokio::{runtime::Builder, sync::watch, task::JoinSet};

use self::{caller::Caller, clients::Clients, session::Session};
use super::{options::ClientOptions, resource::Resource};

/// The line that the process prints when no call is in progress.
pub(super) const IDLE: &str = "idle";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Work,
    Stop,
    End,
}

/// Returns whether the process ended properly.
pub(super) fn main(options: &ClientOptions) -> bool {
    let mut rng = fastrand::Rng::with_seed(options.seed);
    // A blocked thread affects a single-threaded runtime more.
    let mut builder = if rng.u8(..4) == 0 {
        Builder::new_current_thread()
    } else {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2);
        builder
    };
    let runtime = builder.enable_all().build().expect("a runtime");
    runtime.block_on(work(options, rng))
}

async fn work(options: &ClientOptions, mut rng: fastrand::Rng) -> bool {
    let mut phase = listen();
    let clients = Arc::new(Clients::connect(options, &mut rng).await);
    let mut tasks = JoinSet::new();
    for client in 0..options.clients {
        for _ in 0..options.tasks {
            let caller = Caller {
                process: options.process,
                resource: Resource::connect(options.resource).await,
            };
            let session = Session {
                caller,
                clients: Arc::clone(&clients),
                place: client as usize,
                keys: options.keys,
                rng: rng.fork(),
            };
            tasks.spawn(session.work(phase.clone()));
        }
    }
    tasks.spawn(operator::act(
        Arc::clone(&clients),
        phase.clone(),
        options.keys,
        rng.fork(),
    ));
    if clients.has_sentinels() {
        let caller = Caller {
            process: options.process,
            resource: Resource::connect(options.resource).await,
        };
        let (options, phase) = (options.clone(), phase.clone());
        tasks.spawn(clients::visit(options, caller, phase, rng.fork()));
    }
    let eye = clients.embedded().then(|| {
        tasks.spawn(clients::replace(
            Arc::clone(&clients),
            phase.clone(),
            rng.fork(),
        ));
        tokio::spawn(eye::watch(Arc::clone(&clients), options.keys))
    });
    while let Some(ended) = tasks.join_next().await {
        ended.expect("sessions do not panic");
    }
    if let Some(eye) = eye {
        eye::look_for_leftovers(&clients, options.keys).await;
        eye.abort();
        let _ = eye.await;
    }
    println!("{IDLE}");
    let _ = phase.wait_for(|phase| *phase == Phase::End).await;
    clients.shut_down().await
}

/// Follows the commands on the input.
fn listen() -> watch::Receiver<Phase> {
    let (sender, phase) = watch::channel(Phase::Work);
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            if line == "stop" {
                sender.send_replace(Phase::Stop);
            }
        }
        sender.send_replace(Phase::End);
    });
    phase
}
