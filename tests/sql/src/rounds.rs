//! Rounds of two processes that write under the same lock, the older of which is paused beyond its lease.

use std::{
    fmt, process,
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rlock_core::fencing::Fence;
use rlock_testkit::Worker;
use tokio::{task::JoinSet, time::sleep};

use crate::session::{Database, Session};

const PATIENCE: Duration = Duration::from_mins(1);

/// Where the older process is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// With the lock, and no transaction.
    BeforeBegin,
    /// After `BEGIN`.
    BeforeGuard,
    /// After the guard, and a read.
    BeforeWrite,
    /// After the writes.
    BeforeCommit,
}

use Point::{BeforeBegin, BeforeCommit, BeforeGuard, BeforeWrite};

impl Point {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [BeforeBegin, BeforeGuard, BeforeWrite, BeforeCommit];
}

/// What a worker does next: it locks a key, and runs one transaction.
#[derive(Clone, Debug)]
pub struct Command {
    /// The key of the lock, and the name of the account.
    pub key: String,
    /// Whether the guard comes first.
    pub is_guarded: bool,
    /// Where the worker halts, once.
    pub halt: Option<Point>,
    /// Of [`Database::modes`].
    pub mode: String,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            is_guarded,
            halt,
            mode,
        } = self;
        write!(f, "{key} {is_guarded} {halt:?} {mode}")
    }
}

impl FromStr for Command {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [key, is_guarded, halt, mode] = words.try_into().map_err(|_| line.to_owned())?;
        Ok(Self {
            key: key.to_owned(),
            is_guarded: is_guarded == "true",
            halt: Point::ALL
                .into_iter()
                .find(|point| format!("{:?}", Some(point)) == halt),
            mode: mode.to_owned(),
        })
    }
}

/// A database with its tables, and what its workers need.
#[derive(Clone, Debug)]
pub struct Place {
    /// The URL of the server with the locks.
    pub redis: String,
    /// The kind of database.
    pub database: Database,
    /// The URL that the fixture uses.
    pub url: String,
    /// The URL that the workers use.
    pub worker_url: String,
    /// The program of the workers.
    pub program: &'static str,
}

/// What a round varies.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Of [`Database::modes`].
    pub mode: &'static str,
    /// Whether the transactions begin with the guard.
    pub is_guarded: bool,
    /// Where the older process is paused.
    pub point: Point,
    /// Whether an earlier hold has left a row for the key.
    pub is_known: bool,
}

impl Case {
    /// All cases of a database, with the guard or without.
    #[must_use]
    pub fn all(database: Database, is_guarded: bool) -> Vec<Self> {
        let mut all = Vec::new();
        for mode in database.modes() {
            for point in Point::ALL {
                all.extend([true, false].map(|is_known| Self {
                    mode,
                    is_guarded,
                    point,
                    is_known,
                }));
            }
        }
        all
    }

    /// Whether SQLite blocks all other writers while a transaction is paused there.
    fn locks_file(self) -> bool {
        match self.point {
            BeforeBegin => false,
            BeforeGuard => self.mode == "IMMEDIATE",
            BeforeWrite => self.mode == "IMMEDIATE" || self.is_guarded,
            BeforeCommit => true,
        }
    }
}

/// The counts of all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often a process was paused beyond its lease.
    pub stops: usize,
    /// Rounds in which the newer process committed before the older one resumed. The others waited for its transaction.
    pub overtaken: usize,
    /// Transactions that were committed.
    pub commits: usize,
    /// Commits after one with a larger token.
    pub stale_commits: usize,
    /// Commits whose write another one has overwritten unseen.
    pub lost_updates: usize,
}

impl Tally {
    /// Returns how many writes should not be.
    #[must_use]
    pub fn bad(self) -> usize {
        self.stale_commits + self.lost_updates
    }

    fn add(&mut self, other: Self) {
        self.stops += other.stops;
        self.overtaken += other.overtaken;
        self.commits += other.commits;
        self.stale_commits += other.stale_commits;
        self.lost_updates += other.lost_updates;
    }
}

/// Runs all cases, on several pairs of processes at a time, and returns the sum.
///
/// Panics if the newer process of a round does not commit, or if the guard lets an overtaken process write, or refuses
/// one that was not.
pub async fn run(place: &Place, cases: Vec<Case>, pairs: usize) -> Tally {
    let cases = Arc::new(Mutex::new(cases));
    let mut tasks = JoinSet::new();
    for number in 0..pairs {
        let mut place = place.clone();
        if place.database == Database::Sqlite {
            // A process that is paused in a transaction locks the whole file.
            place.url = format!("{}.{number}", place.url);
            place.worker_url.clone_from(&place.url);
        }
        let mut pair = Pair::start(&place, Duration::from_millis(150), ["", ""]).await;
        let cases = Arc::clone(&cases);
        tasks.spawn(async move {
            let next = || cases.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut sum = Tally::default();
            while let Some(case) = next() {
                sum.add(pair.round(case).await);
            }
            sum
        });
    }
    let mut sum = Tally::default();
    for tally in tasks.join_all().await {
        sum.add(tally);
    }
    sum
}

/// Two processes that write to the same accounts.
pub struct Pair {
    place: Place,
    session: Session,
    /// The older holder of each round.
    pub older: Worker,
    /// Its successor.
    pub newer: Worker,
    newer_identity: i64,
}

impl Pair {
    /// Starts the processes. Each runs its statement of `setups`, unless it is empty.
    pub async fn start(place: &Place, lease: Duration, setups: [&str; 2]) -> Self {
        let mut session = Session::open(place.database, &place.url).await;
        session.create_tables().await;
        let [mut older, mut newer] = setups.map(|setup| {
            let mut command = process::Command::new(place.program);
            command.args([
                &place.redis,
                &format!("{:?}", place.database),
                &place.worker_url,
            ]);
            Worker::start(command.arg(lease.as_millis().to_string()).arg(setup))
        });
        line(&mut older).await;
        let newer_identity = line(&mut newer).await.parse().expect("an identity");
        Self {
            place: place.clone(),
            session,
            older,
            newer,
            newer_identity,
        }
    }

    /// Runs a round on a new key.
    async fn round(&mut self, case: Case) -> Tally {
        let key = self.pause_older(case).await;
        let overtaken = self.newer_ends_or_waits(case).await;
        self.older.resume();
        let older = line(&mut self.older).await;
        let newer = match &overtaken {
            Some(end) => end.clone(),
            None => line(&mut self.newer).await,
        };
        assert!(
            newer.starts_with("committed"),
            "{newer}, {case:?}, and the older one {older}"
        );
        if case.is_guarded {
            // If the older one has to run again, either may come first.
            let expected: &[_] = if overtaken.is_some() {
                &["stale", "stale again"]
            } else {
                &["committed", "committed again", "stale again"]
            };
            assert!(expected.contains(&&*older), "{older}, {case:?}");
        }
        let mut tally = self.check(&key).await;
        tally.overtaken = overtaken.is_some().into();
        tally
    }

    /// Lets the older process begin on a new key, and pauses it until the newer one has the lock. Returns the key.
    pub async fn pause_older(&mut self, case: Case) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Case {
            mode,
            is_guarded,
            point,
            is_known,
        } = case;
        let key = format!("order:{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.session.open_account(&key).await;
        if is_known {
            let fence = Fence::new(&key, 1_u64.try_into().expect("a token")).expect("valid");
            self.session
                .try_guard(&fence)
                .await
                .expect("the row is new");
        }
        let command = |halt| Command {
            key: key.clone(),
            is_guarded,
            halt,
            mode: mode.to_owned(),
        };
        self.older.send(&command(Some(point)).to_string());
        assert_eq!(line(&mut self.older).await, "holds");
        assert_eq!(line(&mut self.older).await, "halts", "{case:?}");
        self.older.pause();
        // It reads this when it is resumed.
        self.older.send("go");
        self.newer.send(&command(None).to_string());
        assert_eq!(line(&mut self.newer).await, "holds");
        key
    }

    /// Waits until the newer process waits for the transaction of the older one, or has ended its own, which it returns.
    pub async fn newer_ends_or_waits(&mut self, case: Case) -> Option<String> {
        if self.place.database == Database::Sqlite {
            return if case.locks_file() {
                None
            } else {
                Some(line(&mut self.newer).await)
            };
        }
        let waits = async {
            while !self.session.waits(self.newer_identity).await {
                sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::select! {
            end = line(&mut self.newer) => Some(end),
            () = waits => None,
        }
    }

    /// Looks for stale commits and lost updates of an account.
    pub async fn check(&mut self, key: &str) -> Tally {
        let journal = self.session.journal(key).await;
        let (amount, _) = self.session.read(key).await.expect("an account");
        let (mut newest, mut stale_commits) = (0, 0);
        for &(seen, token) in &journal {
            newest = newest.max(seen);
            stale_commits += usize::from(token < newest);
            newest = newest.max(token);
        }
        let amount = usize::try_from(amount).expect("a sum");
        let lost_updates = journal.len().abs_diff(amount);
        Tally {
            stops: 1,
            overtaken: 0,
            commits: journal.len(),
            stale_commits,
            lost_updates,
        }
    }
}

/// Reads the next line of a worker.
pub async fn line(worker: &mut Worker) -> String {
    let line = worker.line(PATIENCE).await;
    line.expect("the worker runs until its input ends")
}
