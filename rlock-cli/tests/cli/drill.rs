//! Compares the incident "A stuck lock" in `docs/operations.md` with the output of the tools.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rlock_testkit::RedisServer;
use tokio::time::sleep;

use crate::common::{LONG, Running, run, start};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");

/// Builds the service, and returns its program.
fn service() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--locked",
            "-p",
            "rlock-examples",
            "--bin",
            "billing",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", target())
        .status();
    assert!(built.expect("cargo is there").success(), "it builds");
    target().join("debug/billing")
}

fn target() -> &'static Path {
    let program = Path::new(env!("CARGO_BIN_EXE_rlock"));
    program.ancestors().nth(2).expect("in `target/<profile>`")
}

/// The lines of the page's listings, in order.
fn documented() -> Vec<String> {
    let page = fs::read_to_string(PAGE).expect("the page is there");
    let (_, section) = page
        .split_once("\n## A stuck lock\n")
        .expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let listings = section.split("```").skip(1).step_by(2);
    let lines = listings.flat_map(|listing| listing.lines().skip(1));
    lines.map(|line| line.trim_end().to_owned()).collect()
}

/// The characters that end a word.
const ENDS: [char; 6] = [' ', '`', ',', ';', ')', '"'];

/// Returns a line without its variable parts: `T` stands for a duration, `N` for a number, `U` for a UUID.
fn masked(line: &str) -> String {
    let words = line.split_inclusive(ENDS).map(|word| {
        let (word, end) = word.split_at(word.trim_end_matches(ENDS).len());
        mask(word) + end
    });
    words.collect()
}

fn mask(word: &str) -> String {
    let system = rustix::system::uname();
    // The page names the hosts.
    if ["node-3", "ops-1"].contains(&word) || system.nodename().to_str() == Ok(word) {
        return "HOST".to_owned();
    }
    if word.starts_with("rlock/") {
        return "rlock/USER".to_owned();
    }
    let is_uuid = |text: &&str| text.bytes().all(|it| it == b'-' || it.is_ascii_hexdigit());
    let owner = word.strip_prefix("owner=").unwrap_or(word);
    if let Some(uuid) = owner.get(..36).filter(is_uuid) {
        return word.replace(uuid, "U");
    }
    let number = word.trim_end_matches(['m', 's']);
    // Versions, too.
    if number.is_empty() || !number.bytes().all(|it| it == b'.' || it.is_ascii_digit()) {
        return word.to_owned();
    }
    if number == word { "N" } else { "T" }.to_owned()
}

/// The lines that this drill prints, as the page shows them.
#[derive(Default)]
struct Transcript(Vec<String>);

impl Transcript {
    fn add<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) {
        self.0
            .extend(lines.into_iter().map(|line| line.trim_end().to_owned()));
    }

    /// Runs a command to its end, and adds its line, its log and its output.
    async fn run(&mut self, shown: &str, running: Running) -> Option<i32> {
        let outcome = running.end().await;
        self.add([format!("$ {shown}").as_str()]);
        self.add(
            outcome
                .log
                .lines()
                .chain(outcome.output.iter().map(String::as_str)),
        );
        outcome.code
    }
}

/// Runs the drill, and returns its lines and the exit statuses.
async fn drill(program: &Path) -> (Vec<String>, [Option<i32>; 6]) {
    let server = RedisServer::start();
    let url = server.url();
    let billing = |arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env("REDIS_URL", &url);
        Running::start(command)
    };
    let rlock = |words: &[&str]| start(&url, words);
    let mut seen = Transcript::default();

    let mut stuck = billing(&["42", "--stuck"]);
    stuck.expect("order 42: waiting for the bank").await;
    // More than a second, because the page shows seconds.
    sleep(Duration::from_millis(1_200)).await;
    let refused = seen.run("billing 42", billing(&["42"])).await;
    let inspect = ["inspect", "order:42"];
    let inspected = seen.run("rlock inspect order:42", rlock(&inspect)).await;
    let words = ["release", "order:42", "--revoke", "--yes"];
    let asked = "rlock release order:42 --revoke --yes";
    let asked = seen.run(asked, rlock(&words)).await;
    if asked != Some(0) {
        stuck.kill();
    }
    let held = stuck.end().await;
    seen.add(
        held.log
            .lines()
            .chain(held.output.iter().map(String::as_str)),
    );
    let paid = seen.run("billing 42", billing(&["42"])).await;
    let free = run(&url, &inspect).await.code;
    (seen.0, [refused, inspected, asked, held.code, paid, free])
}

#[tokio::test]
async fn the_page_shows_what_an_incident_looks_like() {
    let program = service();
    let shown =
        |lines: &[String]| -> Vec<String> { lines.iter().map(|line| masked(line)).collect() };
    let documented = shown(&documented());
    let began = Instant::now();
    let (seen, statuses) = loop {
        let (seen, statuses) = drill(&program).await;
        // One drill may differ: a holder counts as silent if a busy machine delays its answer by 200 ms.
        if shown(&seen) == documented || began.elapsed() > LONG {
            break (seen, statuses);
        }
    };
    assert_eq!(
        documented,
        shown(&seen),
        "the drill printed:\n{}",
        seen.join("\n")
    );
    assert_eq!(statuses, [1, 0, 0, 1, 0, 1].map(Some));
}
