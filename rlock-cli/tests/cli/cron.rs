//! Runs `examples/cron.sh` as a scheduler would.

use std::{fs, path::Path, process::Command};

use rlock_testkit::RedisServer;

use crate::common::{PATIENT, Running, Scratch, path};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cron.sh");

/// Starts the script with a minimal environment, like cron.
fn cron(server: &RedisServer, report: &Path) -> Running {
    let mut command = Command::new("sh");
    command
        .arg(SCRIPT)
        .arg(report)
        .env_clear()
        .env("PATH", path())
        .envs([PATIENT])
        .env("RLOCK_URL", server.url());
    Running::start(command)
}

#[tokio::test]
async fn one_of_several_machines_runs_the_job() {
    let server = RedisServer::start();
    let report = Scratch::new("report");
    let machines = [(); 3].map(|()| cron(&server, report.path()));
    for machine in machines {
        let outcome = machine.end().await.exits(0);
        assert_eq!(
            (outcome.output.len(), &*outcome.log),
            (0, ""),
            "cron sends no mail"
        );
    }
    let lines = fs::read_to_string(report.path()).expect("the report is there");
    let [line] = lines.lines().collect::<Vec<_>>()[..] else {
        panic!("the job ran once: {lines}")
    };
    let token = line.strip_prefix("written with token ").expect(line);
    assert!(token.parse::<u64>().expect(line) > 0);
}
