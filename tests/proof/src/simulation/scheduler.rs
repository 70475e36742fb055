//! The character of a world, derived from its seed.

use super::fault::{FAULTS, Fault};
use crate::action::Action;
use crate::world::Setup;
use fastrand::Rng;

pub(super) const LEASES: [u64; 7] = [1, 5, 50, 400, 400, 3_000, 30_000];

const LEAST: [u64; 8] = [0, 0, 1, 5, 50, 400, 3_000, 12_000];

/// The minimum hold in calls for permits.
#[derive(Clone, Copy)]
pub(super) enum Least {
    None,
    /// The same for all.
    Alike(u64),
    Any,
}

/// Decides at random what happens next.
pub(super) struct Scheduler {
    pub(super) rng: Rng,
    pub(super) setup: Setup,
    pub(super) faults: Vec<Fault>,
    /// One in this many actions is a fault.
    pub(super) seldom: u32,
    /// Now and then many callers arrive at once.
    pub(super) many_join: bool,
    /// Most callers want one permit of this limit, with leases of this length: the most frequent use of the
    /// scripts.
    pub(super) alike: Option<(u32, u64)>,
    /// Almost every caller uses an id of the application, on a network that loses and delays calls.
    pub(super) own: bool,
    /// Callers limit the length of the line that they join.
    pub(super) bounded: bool,
    /// Some callers have a head start.
    pub(super) early: bool,
    /// The minimum hold of permits.
    pub(super) least: Least,
    /// The actions that follow a fault, the next one last: faults often come together.
    pub(super) follow: Vec<Action>,
    /// All holders release, and no client wants anything more.
    pub(super) leaving: bool,
}

impl Scheduler {
    /// The scheduler of this seed, and whether the world is free of delays from the start.
    pub(super) fn new(seed: u64) -> (Scheduler, bool) {
        let mut rng = Rng::with_seed(seed);
        let clients = rng.usize(2..7);
        let calm = rng.u8(..4) == 0;
        let mut faults = FAULTS.to_vec();
        faults.retain(|fault| rng.bool() && (!calm || *fault == Fault::Deaths));
        let (seldom, many_join) = (rng.u32(2..12), rng.u8(..24) == 0);
        let alike = (rng.u8(..3) == 0).then(|| (rng.u32(1..4), LEASES[rng.usize(4..LEASES.len())]));
        let (bounded, early) = (rng.bool(), rng.bool());
        let least = match rng.u8(..3) {
            0 => Least::None,
            1 => Least::Alike(LEAST[rng.usize(3..LEAST.len())]),
            _ => Least::Any,
        };
        let is_cluster = seed % 4 == 3;
        if is_cluster && !calm {
            faults.extend([Fault::Moves; 4]);
            faults.extend([Fault::Failovers; 2].iter().filter(|_| seed % 8 == 3));
        }
        let (shares_connections, has_replicas) = (rng.bool(), seed % 7 == 4);
        let setup = Setup { clients, is_cluster, shares_connections, has_replicas };
        let (follow, leaving, own) = (Vec::new(), false, seed % 4 == 2);
        let mut scheduler = Scheduler {
            rng,
            setup,
            faults,
            seldom,
            many_join,
            alike,
            own,
            bounded,
            early,
            least,
            follow,
            leaving,
        };
        if own {
            scheduler.make_own();
        }
        (scheduler, calm && !own)
    }

    fn make_own(&mut self) {
        self.faults = vec![Fault::LostCalls, Fault::LostCalls, Fault::Late];
        self.faults.extend([Fault::Flushes].iter().filter(|_| self.rng.bool()));
        self.setup.clients = self.rng.usize(1..3);
        self.alike = Some((1, LEASES[self.rng.usize(4..LEASES.len())]));
        (self.many_join, self.bounded, self.early, self.least) = (false, false, false, Least::None);
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    pub(super) fn at_least_ms(&mut self) -> u64 {
        match self.least {
            Least::None => 0,
            Least::Alike(ms) => ms,
            Least::Any => LEAST[self.rng.usize(..LEAST.len())],
        }
    }

    pub(super) fn max_waiting(&mut self) -> u32 {
        if self.bounded { [0, 0, 1, 1, 2, 3][self.rng.usize(..6)] } else { 0 }
    }

    pub(super) fn head_start_ms(&mut self) -> u64 {
        if self.early { [0, 0, 0, 1, 40, 5_000, 86_400_000][self.rng.usize(..7)] } else { 0 }
    }

    /// True once in `n` times.
    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }
}
