//! Changes a running server: pauses, restarts and configures it.

use std::fs;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use redis::InfoDict;
use tokio::time::sleep;

use super::RedisServer;
use crate::{PATIENCE, eventually};

impl RedisServer {
    /// Empties the server.
    pub async fn flush_all(&self) {
        let () = self.command(&["FLUSHALL"]).await;
    }

    /// Runs a script for this long. After `lua-time-limit` (5 s) other clients get BUSY replies.
    /// Returns when the script has ended.
    pub async fn run_script_for(&self, time: Duration) {
        // Some versions freeze the time within scripts and have another clock.
        const SCRIPT: &str = "local has_clock, clock = pcall(function() return os.clock end)
            local function now()
              if has_clock then
                return clock() * 1000
              end
              local time = redis.call('TIME')
              return time[1] * 1000 + time[2] / 1000
            end
            local ending = now() + ARGV[1]
            while now() < ending do end";
        let time = time.as_millis().to_string();
        let _: redis::Value = self.command(&["EVAL", SCRIPT, "0", &time]).await;
    }

    /// Changes the permissions of a user; `rules` as in `ACL SETUSER`.
    pub async fn set_user(&self, name: &str, rules: &str) {
        let mut words = vec!["ACL", "SETUSER", name];
        words.extend(rules.split_whitespace());
        let () = self.command(&words).await;
    }

    /// Makes this server a replica, and returns once it has its master's data. It must know its
    /// master's password.
    pub async fn follow(&self, master: &Self) {
        // Without this, a master waits for further replicas.
        master.config_set("repl-diskless-sync-delay", "0").await;
        self.follow_in_vain(master).await;
        eventually(PATIENCE, "the replica has the master's data", async || {
            let replication: InfoDict = self.command(&["INFO", "replication"]).await;
            replication.get::<String>("master_link_status").as_deref() == Some("up")
        })
        .await;
        // A replica counts after its first acknowledgement, which may take another second.
        let online = format!("port={},state=online", self.replication_port());
        eventually(PATIENCE, "the master counts its replica", async || {
            let replication: String = master.command(&["INFO", "replication"]).await;
            replication.contains(&online)
        })
        .await;
    }

    /// Makes this server a replica of a server that may be down.
    pub async fn follow_in_vain(&self, master: &Self) {
        let port = master.replication_port().to_string();
        let () = self.command(&["REPLICAOF", "127.0.0.1", &port]).await;
    }

    /// Returns once the replica has executed all commands of its master so far.
    pub async fn catch_up_with(&self, master: &Self) {
        let offset = async |server: &Self, name: &str| -> i64 {
            let replication: InfoDict = server.command(&["INFO", "replication"]).await;
            replication.get(name).unwrap_or(-1)
        };
        let wanted = offset(master, "master_repl_offset").await;
        eventually(PATIENCE, "the replica catches up", async || {
            offset(self, "slave_repl_offset").await >= wanted
        })
        .await;
    }

    /// Makes a replica a master.
    pub async fn promote(&self) {
        let () = self.command(&["REPLICAOF", "NO", "ONE"]).await;
    }

    /// Makes a node of a cluster serve these slots.
    pub async fn serve_slots(&self, slots: RangeInclusive<u16>) {
        let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
        let words = ["CLUSTER", "ADDSLOTS"];
        let words = words.into_iter().chain(slots.iter().map(String::as_str));
        let () = self.command(&words.collect::<Vec<_>>()).await;
    }

    /// Saves the data to disk, for [`restart_with_data`](Self::restart_with_data).
    pub async fn save(&self) {
        let () = self.command(&["SAVE"]).await;
    }

    /// Returns once the server has loaded its data.
    pub async fn loaded(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let persistence: InfoDict = self.command(&["INFO", "persistence"]).await;
            if persistence.get::<u8>("loading") == Some(0) {
                return;
            }
            assert!(Instant::now() < end, "the server does not end to load");
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Makes every save fail, and returns once the server refuses writes (MISCONF).
    /// [`let_saves_succeed`](Self::let_saves_succeed) undoes it.
    pub async fn let_saves_fail(&self) {
        let in_the_way = self.directory().join("dump.rdb");
        fs::create_dir_all(in_the_way.join("x")).expect("the directory is the fixture's own");
        self.config_set("save", "3600 1000000").await;
        let _: redis::Value = self.command(&["BGSAVE"]).await;
        self.last_save_is("err").await;
    }

    /// Makes saves succeed again, and returns once they do.
    pub async fn let_saves_succeed(&self) {
        let in_the_way = self.directory().join("dump.rdb");
        fs::remove_dir_all(in_the_way).expect("the directory is the fixture's own");
        let _: redis::Value = self.command(&["BGSAVE"]).await;
        self.last_save_is("ok").await;
        self.config_set("save", "").await;
    }

    async fn last_save_is(&self, status: &str) {
        eventually(PATIENCE, "the attempt to save has ended", async || {
            let persistence: InfoDict = self.command(&["INFO", "persistence"]).await;
            let last: Option<String> = persistence.get("rdb_last_bgsave_status");
            last.as_deref() == Some(status)
        })
        .await;
    }
}
