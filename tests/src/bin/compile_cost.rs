//! Measures the compile-time cost of the attribute: time and program size for each locked function.
//!
//! The same function with `#[tracing::instrument]` serves as a comparison. The cost of the plain
//! function is subtracted from both.
//!
//! The program generates three packages of the same functions. It builds each alone, several times,
//! in release mode, after their dependencies. Each package acquires one lock manually, so that all
//! programs contain the runtime.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Instant,
};

use clap::Parser;

/// Measures the cost of compiling locked functions.
#[derive(Parser)]
struct Options {
    /// The number of functions in each package.
    #[arg(long, default_value_t = 300)]
    functions: usize,
    /// The number of builds of each package. The fastest build counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The directory to build in. Defaults to a directory below the workspace's target directory.
    #[arg(long)]
    target: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Instrumented,
    Locked,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Plain, Self::Instrumented, Self::Locked];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Instrumented => "instrumented",
            Self::Locked => "locked",
        }
    }

    fn attribute(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Instrumented => "#[tracing::instrument(skip(self))]",
            Self::Locked => {
                "#[rlock_core::distributed_lock(key = \"order:<id>\", lease = \"30s\")]"
            }
        }
    }
}

/// The cost of a package.
struct Cost {
    kind: Kind,
    /// Processor time, in milliseconds.
    processor: f64,
    /// Wall-clock time, in milliseconds.
    wall: f64,
    /// Machine code and read-only data, in bytes.
    bytes: f64,
    /// Lines of LLVM's representation before optimisation, if `cargo llvm-lines` is installed.
    lines: Option<f64>,
}

fn main() {
    let options = Options::parse();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = options
        .target
        .clone()
        .unwrap_or_else(|| workspace.join("target/compile_cost"));
    let sources = target.join("packages");
    for kind in Kind::ALL {
        write_package(kind, &options, &workspace, &sources);
    }
    let costs = Kind::ALL.map(|kind| measure(kind, &options, &sources, &target));
    report(&costs, options.functions);
}

/// The packages share dependencies and features, so these are built once.
fn write_package(kind: Kind, options: &Options, workspace: &Path, sources: &Path) {
    let package = sources.join(kind.name());
    fs::create_dir_all(package.join("src")).expect("a directory");
    let core = workspace.join("rlock-core");
    let core = core.display();
    let manifest = format!(
        r#"
[package]
name = "{}"
version = "0.1.0"
edition = "2024"

[dependencies]
rlock-core = {{ path = "{core}", default-features = false, features = ["macros"] }}
tokio = {{ version = "1", features = ["rt"] }}
tracing = {{ version = "0.1", features = ["attributes"] }}

[workspace]
"#,
        kind.name(),
    );
    fs::write(package.join("Cargo.toml"), manifest).expect("a manifest");
    fs::copy(workspace.join("Cargo.lock"), package.join("Cargo.lock"))
        .expect("the workspace's versions");
    fs::write(package.join("src/main.rs"), source(kind, options.functions)).expect("a source");
}

/// Generates methods with different return types, and a `main` that uses all of them.
fn source(kind: Kind, functions: usize) -> String {
    let mut source = String::from(
        "use std::{future::Future, pin::Pin};
use rlock_core::LockError;
pub struct Shop { tenant: String }
",
    );
    let mut calls = String::new();
    for n in 0..functions {
        let attribute = kind.attribute();
        write!(
            source,
            "
pub struct Receipt{n} {{ pub id: u64, pub text: String }}
impl Shop {{
    {attribute}
    pub async fn pay{n}(&self, id: u64, name: String) -> Result<Receipt{n}, LockError> {{
        if id == {n} {{
            tokio::task::yield_now().await;
        }}
        let text = format!(\"{{name}} {{id}} {{}}\", self.tenant);
        Ok(Receipt{n} {{ id, text }})
    }}
}}
"
        )
        .expect("a string takes all");
        writeln!(
            calls,
            "        Box::pin(async move {{ shop.pay{n}(id, String::new()).await.map_or(0, |receipt| receipt.id + receipt.text.len() as u64) }}),"
        )
        .expect("a string takes all");
    }
    write!(
        source,
        "
fn all(shop: &Shop, id: u64) -> Vec<Pin<Box<dyn Future<Output = u64> + Send + '_>>> {{
    vec![
{calls}    ]
}}

fn main() {{
    let shop = Shop {{ tenant: String::new() }};
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect(\"a runtime\");
    let locks = rlock_core::LockClient::in_memory();
    locks.clone().install();
    runtime.block_on(async {{
        let _ = locks.lock(\"once\").run(async {{}}).await;
        for future in all(&shop, 7) {{
            future.await;
        }}
    }});
}}
"
    )
    .expect("a string takes all");
    source
}

fn measure(kind: Kind, options: &Options, sources: &Path, target: &Path) -> Cost {
    let package = sources.join(kind.name());
    let main = package.join("src/main.rs");
    let cargo = |command: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(command)
            .current_dir(&package)
            .env("CARGO_TARGET_DIR", target)
            .env("CARGO_INCREMENTAL", "0")
            .stderr(Stdio::inherit())
            .output();
        output.expect("cargo runs")
    };
    let build = || {
        let Output { status, .. } = cargo(&["build", "--release", "--offline", "--quiet"]);
        assert!(status.success(), "package `{}` does not build", kind.name());
    };
    build();
    let mut processor = f64::INFINITY;
    let mut wall = f64::INFINITY;
    for _ in 0..options.rounds {
        let text = fs::read(&main).expect("the source");
        fs::write(&main, text).expect("the source");
        let (before, started) = (children(), Instant::now());
        build();
        processor = processor.min(children() - before);
        wall = wall.min(started.elapsed().as_secs_f64() * 1e3);
    }
    let program = target.join("release").join(kind.name());
    let size = Command::new("size")
        .arg(&program)
        .output()
        .expect("`size` of the binutils runs");
    let size = String::from_utf8_lossy(&size.stdout).into_owned();
    let bytes = size
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .expect("the size of the text");
    let lines = cargo(&["llvm-lines", "--release", "--offline", "--quiet"]);
    let lines = String::from_utf8_lossy(&lines.stdout)
        .lines()
        .find(|line| line.contains("(TOTAL)"))
        .and_then(|line| line.split_whitespace().next()?.parse().ok());
    Cost {
        kind,
        processor,
        wall,
        bytes,
        lines,
    }
}

/// Returns the processor time of all child processes that have ended, in milliseconds.
fn children() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    // The fields after the program's name start with the third.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    let ticks = |field: usize| -> f64 { fields[field - 3].parse().expect("a number") };
    // Ticks of 10 ms, of children in user mode and in the kernel.
    (ticks(16) + ticks(17)) * 10.0
}

fn report(costs: &[Cost; 3], functions: usize) {
    let [plain, instrumented, locked] = costs;
    println!("a function of {functions}, without what the plain function costs");
    println!(
        "{:<14} {:>13} {:>9} {:>9} {:>11}",
        "", "processor, ms", "wall, ms", "bytes", "LLVM lines"
    );
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let per = |cost: &Cost, of: fn(&Cost) -> f64| (of(cost) - of(plain)) / functions as f64;
    let columns: [fn(&Cost) -> f64; 4] = [
        |cost| cost.processor,
        |cost| cost.wall,
        |cost| cost.bytes,
        |cost| cost.lines.unwrap_or(f64::NAN),
    ];
    for cost in [instrumented, locked] {
        let [processor, wall, bytes, lines] = columns.map(|of| per(cost, of));
        println!(
            "{:<14} {processor:>13.1} {wall:>9.1} {bytes:>9.0} {lines:>11.0}",
            cost.kind.name()
        );
    }
    let [processor, wall, bytes, lines] = columns.map(|of| per(locked, of) / per(instrumented, of));
    println!(
        "{:<14} {processor:>13.2} {wall:>9.2} {bytes:>9.2} {lines:>11.2}",
        "ratio"
    );
}
