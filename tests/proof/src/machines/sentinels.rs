//! Sentinels, the servers that they report, and a client of them, in random worlds: sentinels fall silent,
//! report late or wrongly, and the master changes.

use crate::client::moment;
use crate::protocol::failure::Failure;
use crate::protocol::kind::FailureKind;
use crate::protocol::routing::HostPort;
use crate::protocol::routing::sentinel::{Listen, Listener, SentinelState};
use fastrand::Rng;
use std::time::{Duration, Instant};

const WORLDS: u64 = 3_000;
const STEPS: usize = 60;

/// How long a search may take.
const TIME: Duration = Duration::from_secs(1);

/// What one sentinel does.
#[derive(Clone, Copy, Debug)]
struct Sentinel {
    is_up: bool,
    /// The master that it reports.
    reports: u16,
}

struct World {
    rng: Rng,
    now: Instant,
    sentinels: Vec<Sentinel>,
    /// The port of the master.
    master: u16,
    state: SentinelState,
    listener: Listener,
    /// The sentinel of the subscription, while it works.
    on: Option<usize>,
    /// Whether there was news since the listener last asked.
    news: bool,
    /// The sentinel that has failed since the listener paused.
    failed: Option<usize>,
    /// The master of the connection, and the number of moves when it was made.
    connected: Option<(u16, u64)>,
}

pub(super) fn check() {
    (0..WORLDS).for_each(|seed| World::new(seed).live(seed));
}

fn at(port: u16) -> HostPort {
    ("host".to_owned(), port)
}

fn silent() -> Failure {
    Failure::new(FailureKind::TimedOut, "silent")
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::with_seed(seed);
        let count = rng.usize(1..4);
        World {
            rng,
            now: moment(1_000_000, 0).instant(),
            sentinels: vec![Sentinel { is_up: true, reports: 1 }; count],
            master: 1,
            state: SentinelState::new(count),
            listener: Listener::default(),
            on: None,
            news: false,
            failed: None,
            connected: None,
        }
    }

    fn live(mut self, seed: u64) {
        for _ in 0..STEPS {
            match self.rng.u8(..6) {
                0 => self.change(),
                1 | 2 => {
                    self.search(seed);
                }
                _ => self.listen(seed),
            }
        }
        // All sentinels work and know the master.
        for sentinel in &mut self.sentinels {
            *sentinel = Sentinel { is_up: true, reports: self.master };
        }
        self.news = true;
        let is_done = |world: &World| world.on.is_some() && !world.news;
        for _ in 0..6 {
            if !is_done(&self) {
                self.listen(seed);
            }
        }
        assert!(is_done(&self), "seed {seed}: it does not hear of the master");
        if self.connected.is_none_or(|(_, moves)| moves != self.state.moves()) {
            self.search(seed);
        }
        let connected = self.connected.map(|(port, _)| port);
        assert_eq!(connected, Some(self.master), "seed {seed}: a former master is still used");
    }

    /// A sentinel ends or begins to work, or hears of the master, or the master changes.
    fn change(&mut self) {
        let sentinel = self.rng.usize(..self.sentinels.len());
        match self.rng.u8(..4) {
            0 => self.master = self.rng.u16(1..4),
            1 => self.sentinels[sentinel].reports = self.master,
            2 => self.sentinels[sentinel].is_up = self.rng.bool(),
            _ => self.sentinels[sentinel].reports = self.rng.u16(1..4),
        }
        self.news |= self.on == Some(sentinel) || self.rng.bool();
    }

    /// A request to this sentinel. It takes its time.
    fn ask(&mut self, sentinel: usize, within: Duration) -> Result<u16, Failure> {
        let Sentinel { is_up, reports } = self.sentinels[sentinel];
        self.now += if is_up { within / 10 } else { within };
        if is_up { Ok(reports) } else { Err(silent()) }
    }

    /// The client connects. Returns the sentinel that named the master.
    fn search(&mut self, seed: u64) -> Option<usize> {
        let deadline = self.now + TIME;
        let mut search = self.state.search();
        let mut asked = vec![];
        let found = loop {
            let Some((sentinel, until)) = search.next(self.now, deadline) else {
                break None;
            };
            asked.push(sentinel);
            let left = until.saturating_duration_since(self.now);
            assert!(self.now + left * 2 <= deadline, "seed {seed}: no time is left for the master");
            assert!(!left.is_zero(), "seed {seed}: no time is left for a sentinel");
            match self.ask(sentinel, left) {
                Ok(port) if port == self.master => {
                    let moves = self.state.connected(sentinel, at(port));
                    self.connected = Some((port, moves));
                    break Some(sentinel);
                }
                Ok(_) => search.failure = Failure::new(FailureKind::NotReady, "it is no master"),
                Err(failure) => search.failure = failure,
            }
        };
        let knows = |sentinel: &Sentinel| sentinel.is_up && sentinel.reports == self.master;
        assert_eq!(found.is_some(), self.sentinels.iter().any(knows), "seed {seed}: {asked:?}");
        asked.sort_unstable();
        asked.dedup();
        assert!(found.is_some() || asked.len() == self.sentinels.len(), "seed {seed}: {asked:?}");
        found
    }

    /// The next step of the listener.
    fn listen(&mut self, seed: u64) {
        let result = match self.listener.next(&self.state) {
            Listen::Subscribe(sentinel) => {
                assert_ne!(self.failed, Some(sentinel), "seed {seed}: it does not pause after a failure");
                self.on = Some(sentinel);
                match self.ask(sentinel, TIME) {
                    Ok(_) => {
                        self.listener.heard();
                        self.news = true;
                        Ok(())
                    }
                    Err(failure) => Err(failure),
                }
            }
            Listen::Ask(sentinel) => {
                assert_eq!(self.on, Some(sentinel), "seed {seed}: it asks another sentinel");
                self.news = false;
                self.ask(sentinel, TIME).map(|port| {
                    // Meanwhile a call may connect.
                    let found = if self.rng.bool() { self.search(seed) } else { None };
                    let before = self.state.moves();
                    self.listener.told(&mut self.state, at(port));
                    let is_kept = self.state.moves() == before;
                    assert!(
                        is_kept || found.is_none_or(|found| found == sentinel),
                        "seed {seed}: a connection ends"
                    );
                })
            }
            Listen::Wait => match self.on {
                Some(sentinel) if self.sentinels[sentinel].is_up => {
                    if self.news {
                        self.listener.heard();
                    }
                    Ok(())
                }
                _ => Err(silent()),
            },
            Listen::Pause(pause) => {
                assert!(!pause.is_zero());
                self.failed = None;
                Ok(())
            }
            Listen::Stop => panic!("seed {seed}: it stops"),
        };
        if let Err(failure) = result {
            self.failed = self.on.take();
            self.listener.failed(&mut self.state, failure.kind());
        }
    }
}
