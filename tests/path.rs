//! Checks which functions are on the stack when an uncontended acquire sends its request.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
};

use rlock_core::LockClient;
use rlock_testkit::RedisServer;
use serde::Deserialize;

/// It notes the stack of each allocation, also of the one in which redis-rs writes the command.
#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rlock-core/src");
/// The modules of the functions on the stack, outermost first: no layer comes between a call and its connection unnoticed.
const PATH: [&str; 9] = [
    // `Lock::call`
    "lock",
    // `acquire`: `CallGuard::begin`, `Shell::on_call`, `Machine::on` and `Acquisition::step` have returned `Step::Send`.
    "engine/acquire",
    // `CallGuard::send` makes a request of the store. The embedded store replies at once.
    "engine/call",
    // `Core::sent_until_closed` notes the caller's runtime.
    "engine/core",
    // `RedisStore::call` repeats what the next connection may serve.
    "store/redis",
    // `attempt` and `exchange` choose the connection, and limit the wait.
    "store/redis/exchange",
    "store/redis/exchange",
    // `Link::send`
    "store/redis/link",
    // `Connection::send` hands the command to the connection of redis-rs, whose task writes it.
    "store/redis/connection",
];

#[test]
fn no_layer_comes_between_a_call_and_its_connection() {
    let mut sources = Vec::new();
    add_sources(Path::new(SOURCES), &mut sources);
    let stacks = stacks_of_an_acquire();
    let writes = |stack: &&Vec<String>| {
        stack
            .iter()
            .any(|frame| frame.contains("::get_packed_command"))
    };
    let stack = stacks
        .iter()
        .find(writes)
        .expect("redis-rs writes a command");
    let path = functions(stack, &sources);
    assert_eq!(path, PATH, "{stack:#?}");
}

#[derive(Deserialize)]
struct Profile {
    #[serde(rename = "pps")]
    points: Vec<Point>,
    #[serde(rename = "ftbl")]
    frames: Vec<String>,
}

#[derive(Deserialize)]
struct Point {
    #[serde(rename = "fs")]
    frames: Vec<usize>,
}

/// Returns the stacks of all allocations of an acquire, innermost first.
fn stacks_of_an_acquire() -> Vec<Vec<String>> {
    let file = env::temp_dir().join(format!("rlock-path-{}.json", process::id()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let server = RedisServer::start();
        let client = LockClient::connect(&server.url()).await.expect("running");
        client.lock("first").run(async {}).await.expect("free");
        let profiler = dhat::Profiler::builder()
            .file_name(&file)
            .trim_backtraces(None)
            .build();
        let guard = client.lock("k").acquire().await.expect("free");
        drop(profiler);
        guard.release().await.expect("held");
    });
    let profile = fs::read(&file).expect("the profiler wrote it");
    fs::remove_file(&file).expect("a file of this test");
    let profile: Profile = serde_json::from_slice(&profile).expect("a profile");
    let stack = |point: Point| {
        let frames = point.frames.into_iter();
        frames.map(|frame| profile.frames[frame].clone()).collect()
    };
    profile.points.into_iter().map(stack).collect()
}

/// Returns the modules of the functions of this framework on a stack, outermost first. What is inside a function, like
/// a closure, is part of it.
fn functions(stack: &[String], sources: &[PathBuf]) -> Vec<String> {
    let mut functions: Vec<String> = Vec::new();
    for frame in stack.iter().rev() {
        let Some((name, place)) = frame.rsplit_once(" (") else {
            continue;
        };
        let file = place.split(':').next().unwrap_or_default();
        let Some(source) = sources.iter().find(|source| source.ends_with(file)) else {
            continue;
        };
        let source = source.strip_prefix(SOURCES).expect("one of them");
        let module = source.with_extension("").display().to_string();
        let is_inside = !name.contains(": {async_fn") && functions.last() == Some(&module);
        if !is_inside {
            functions.push(module);
        }
    }
    functions
}

fn add_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            add_sources(&path, sources);
        } else {
            sources.push(path);
        }
    }
}
