//! The cost of the attribute on the embedded store, compared with the plain function and with a
//! manual lock. Prints time, allocations and the size of the future.

use std::{future::Future, hint::black_box, time::Instant};

use rlock_core::{LockClient, LockError, distributed_lock, escape};

const ROUNDS: usize = 11;
const CALLS: u32 = 20_000;

async fn plain(id: u64) -> Result<u64, LockError> {
    Ok(black_box(id))
}

#[distributed_lock(key = "order:<id>")]
async fn annotated(id: u64) -> Result<u64, LockError> {
    Ok(black_box(id))
}

async fn by_hand(client: &LockClient, id: u64) -> Result<u64, LockError> {
    let lock = client.lock(format!("order:{}", escape(id)));
    lock.run(Box::pin(async move { Ok(black_box(id)) })).await?
}

/// A way to call the function, with its measurements.
struct Contestant {
    name: &'static str,
    nanos: Vec<f64>,
    allocations: u64,
    bytes: usize,
}

impl Contestant {
    fn new(name: &'static str, bytes: usize) -> Self {
        Self {
            name,
            nanos: Vec::new(),
            allocations: 0,
            bytes,
        }
    }

    fn median(&mut self) -> f64 {
        self.nanos.sort_unstable_by(f64::total_cmp);
        self.nanos[self.nanos.len() / 2]
    }
}

fn run<F>(runtime: &tokio::runtime::Runtime, into: &mut Contestant, call: impl Fn(u64) -> F)
where
    F: Future<Output = Result<u64, LockError>>,
{
    let calls = async |calls: u32| {
        for id in 0..u64::from(calls) {
            assert_eq!(call(id).await.expect("free"), id);
        }
    };
    runtime.block_on(calls(100));
    let counted = allocation_counter::measure(|| runtime.block_on(calls(CALLS)));
    into.allocations = counted.count_total / u64::from(CALLS);
    let started = Instant::now();
    runtime.block_on(calls(CALLS));
    into.nanos
        .push(started.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let client = LockClient::in_memory();
    client.install();
    let mut contestants = [
        Contestant::new("plain function", size_of_val(&plain(1))),
        Contestant::new("attribute", size_of_val(&annotated(1))),
        Contestant::new("by hand", size_of_val(&by_hand(&client, 1))),
    ];
    for _ in 0..ROUNDS {
        let [one, two, three] = &mut contestants;
        run(&runtime, one, plain);
        run(&runtime, two, annotated);
        run(&runtime, three, |id| by_hand(&client, id));
    }
    println!("median of {ROUNDS} rounds of {CALLS} calls, in turns");
    println!(
        "{:<15} {:>10} {:>12} {:>13}",
        "", "ns a call", "allocations", "future, bytes"
    );
    for contestant in &mut contestants {
        let median = contestant.median();
        let Contestant {
            name,
            allocations,
            bytes,
            ..
        } = contestant;
        println!("{name:<15} {median:>10.0} {allocations:>12} {bytes:>13}");
    }
    let ratio = contestants[1].median() / contestants[2].median();
    println!("attribute ÷ by hand: {ratio:.3}");
}
