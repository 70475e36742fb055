//! A seeded scheduler: decides what happens next in a world, and tells the shortest story it finds of what went wrong.

use crate::action::Action;
use crate::client::Phase;
use crate::ledger::Violation;
use crate::scripts::Scripts;
use crate::world::{Count, World};
use fastrand::Rng;
use std::time::{Duration, Instant};

/// How many steps one world lives, before everybody goes.
pub const STEPS: usize = 1_500;

/// How long a story is shrunk.
const PATIENCE: Duration = Duration::from_secs(20);

const LEASES: [u64; 7] = [1, 5, 50, 400, 400, 3_000, 30_000];
const WAITS: [u64; 9] = [0, 0, 0, 30, 300, 5_000, 5_000, 20_000, 200_000];

/// What may go wrong in a world; each world has some of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Late,
    LostCalls,
    LostMessages,
    Deaths,
    Drops,
    Restarts,
    OlderState,
    ClockSteps,
    Evictions,
    FullMemory,
    Flushes,
}

const FAULTS: [Fault; 11] = [
    Fault::Late,
    Fault::LostCalls,
    Fault::LostMessages,
    Fault::Deaths,
    Fault::Drops,
    Fault::Restarts,
    Fault::OlderState,
    Fault::ClockSteps,
    Fault::Evictions,
    Fault::FullMemory,
    Fault::Flushes,
];

/// What went wrong.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub violation: Violation,
    /// All that happened, up to there.
    pub actions: Vec<Action>,
    clients: usize,
}

struct Scheduler {
    rng: Rng,
    clients: usize,
    faults: Vec<Fault>,
    /// One in so many actions is a fault.
    seldom: u32,
    /// Now and then many come at once.
    crowded: bool,
    /// Most want one permit, of this limit, with leases of this length: what scripts do most often.
    alike: Option<(u32, u64)>,
    /// Whoever holds gives back, and nobody wants anything more.
    leaving: bool,
}

/// Runs the world of this seed.
///
/// # Errors
/// The first promise that was broken.
pub fn run(scripts: &Scripts, seed: u64) -> Result<(usize, Count), Box<Failure>> {
    let (mut scheduler, clients, calm) = Scheduler::new(seed);
    let mut actions = Vec::new();
    let mut world = World::new(scripts, clients).unwrap_or_else(|error| panic!("{error}"));
    let result = scheduler.live(&mut world, &mut actions, calm);
    match result {
        Ok(()) => Ok((actions.len(), world.count)),
        Err(violation) => Err(Box::new(Failure {
            seed,
            violation,
            actions,
            clients,
        })),
    }
}

impl Scheduler {
    /// The scheduler of this seed, how many clients there are, and whether all is calm from the start.
    fn new(seed: u64) -> (Scheduler, usize, bool) {
        let mut rng = Rng::with_seed(seed);
        let clients = rng.usize(2..7);
        let calm = rng.u8(..4) == 0;
        let mut faults = FAULTS.to_vec();
        faults.retain(|fault| rng.bool() && (!calm || *fault == Fault::Deaths));
        let (seldom, crowded) = (rng.u32(2..12), rng.u8(..24) == 0);
        let alike = (rng.u8(..3) == 0).then(|| (rng.u32(1..4), LEASES[rng.usize(4..LEASES.len())]));
        let scheduler = Scheduler {
            rng,
            clients,
            faults,
            seldom,
            crowded,
            alike,
            leaving: false,
        };
        (scheduler, clients, calm)
    }

    fn live(
        &mut self,
        world: &mut World,
        actions: &mut Vec<Action>,
        calm: bool,
    ) -> Result<(), Violation> {
        let mut step = |world: &mut World, action: Action| {
            let result = world.apply(&action);
            actions.push(action);
            result
        };
        if calm {
            step(world, Action::Calm)?;
        }
        for _ in 0..STEPS {
            let action = self.next(world, calm);
            step(world, action)?;
        }
        // The faults end, and everybody goes.
        self.faults.clear();
        self.leaving = true;
        step(world, Action::Full(false))?;
        for client in 0..self.clients {
            step(world, Action::Subscribe { client })?;
        }
        step(world, Action::Calm)?;
        for _ in 0..STEPS {
            let action = self.next(world, true);
            step(world, action)?;
            if !world
                .clients
                .iter()
                .any(|client| !matches!(client.phase, Phase::Idle | Phase::Dead))
            {
                break;
            }
        }
        let latest = world
            .gates
            .iter()
            .map(|gate| gate.ledger.latest)
            .max()
            .unwrap_or(0);
        step(
            world,
            Action::Pass(latest.saturating_sub(world.now()) + 63_000),
        )?;
        step(world, Action::End)
    }

    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// One of `n`.
    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    fn next(&mut self, world: &World, calm: bool) -> Action {
        let (flights, mails) = (world.flights(), world.mails());
        let due = world.due();
        if calm || !self.has(Fault::Late) {
            // Everything is prompt.
            if mails > 0 && !(self.has(Fault::LostMessages) && self.one_in(4)) {
                return Action::Read { mail: 0 };
            }
            if flights > 0 && !(self.has(Fault::LostCalls) && self.one_in(8)) {
                return Action::Prompt { flight: 0 };
            }
            if let Some(client) = due {
                return Action::Act { client };
            }
        }
        if !calm && !self.faults.is_empty() && self.one_in(self.seldom) {
            let fault = self.faults[self.rng.usize(..self.faults.len())];
            if let Some(action) = self.fault(fault, flights, mails) {
                return action;
            }
        }
        if calm && self.has(Fault::Deaths) && self.one_in(40) {
            let client = self.rng.usize(..self.clients);
            return Action::Die { client };
        }
        if self.crowded && !self.leaving && self.one_in(200) {
            return Action::Crowd {
                gate: self.rng.usize(..3),
                count: self.rng.usize(95..210),
                lease_ms: LEASES[self.rng.usize(..LEASES.len())],
                wait_ms: WAITS[self.rng.usize(..WAITS.len())],
            };
        }
        self.ordinary(world, calm)
    }

    fn ordinary(&mut self, world: &World, calm: bool) -> Action {
        let client = self.rng.usize(..self.clients);
        let holds = matches!(world.clients[client].phase, Phase::Holding { .. });
        let asks = matches!(world.clients[client].phase, Phase::Asking { .. });
        let lease_ms = LEASES[self.rng.usize(..LEASES.len())];
        let wait_ms = WAITS[self.rng.usize(..WAITS.len())];
        if self.leaving {
            return match self.rng.u8(..4) {
                0 if holds => Action::Leave { client, keep: 0 },
                _ => self.pass(world, true),
            };
        }
        match self.rng.u8(..20) {
            0..=4 if !holds && !asks && self.alike.is_some() => {
                let (limit, lease) = self.alike.unwrap_or_default();
                Action::Want {
                    client,
                    gate: 0,
                    permits: Some(if self.one_in(12) { 2.min(limit) } else { 1 }),
                    limit,
                    lease_ms: if self.one_in(12) { lease_ms } else { lease },
                    wait_ms,
                    inbox: wait_ms > 60_000 || !self.one_in(12),
                }
            }
            0..=4 if !holds && !asks => Action::Want {
                client,
                gate: [0, 0, 0, 1, 2][self.rng.usize(..5)],
                permits: [Some(1), Some(1), Some(2), Some(3), None][self.rng.usize(..5)],
                limit: [3, 3, 3, 1, 2, 4, 0][self.rng.usize(..7)],
                lease_ms,
                wait_ms,
                inbox: wait_ms > 60_000 || !self.one_in(6),
            },
            5..=7 if holds => Action::Leave {
                client,
                keep: [0, 0, 0, 1, 2][self.rng.usize(..5)],
            },
            7 if asks && self.one_in(6) => Action::Leave { client, keep: 0 },
            6 if asks && self.one_in(6) => Action::LastWord { client },
            8 | 9 if holds => {
                let lease_ms = if self.one_in(6) { 0 } else { lease_ms };
                Action::Refresh { client, lease_ms }
            }
            10 if self.one_in(4) => Action::Born { client },
            11 if self.one_in(4) => Action::Lookup {
                gate: self.rng.usize(..3),
                client,
            },
            11 if self.one_in(4) => Action::Inspect {
                gate: self.rng.usize(..3),
            },
            11 if self.one_in(3) => Action::Stale {
                gate: self.rng.usize(..3),
                client,
                refresh: self.one_in(2),
            },
            12 if self.one_in(12) => Action::Resize {
                gate: 0,
                limit: [1, 2, 3, 4, 0, 0][self.rng.usize(..6)],
                expected: [None, None, Some(2), Some(3), Some(0)][self.rng.usize(..5)],
            },
            13 if self.one_in(3) => Action::LockAll {
                name: self.rng.usize(..2),
                lease_ms,
            },
            14 if self.one_in(3) => Action::FreeAll {
                name: self.rng.usize(..2),
            },
            15 | 16 if world.flights() > 0 => {
                let flight = self.rng.usize(..world.flights());
                match self.rng.u8(..3) {
                    0 => Action::Arrive { flight },
                    1 => Action::Return { flight },
                    _ => Action::Prompt { flight },
                }
            }
            17 if world.mails() > 0 => Action::Read {
                mail: self.rng.usize(..world.mails()),
            },
            18 if !calm => Action::Act { client },
            _ => self.pass(world, calm),
        }
    }

    /// Time goes by: a little, or up to what is due next; where all is calm not beyond it.
    fn pass(&mut self, world: &World, calm: bool) -> Action {
        let mono = world.mono;
        let dues = world.clients.iter().filter_map(|client| client.due_at());
        let next = dues
            .filter(|at| *at > mono)
            .min()
            .map(|at| (at - mono).div_ceil(1_000));
        let ms = match self.rng.u8(..8) {
            0 | 1 => 1,
            2 | 3 => self.rng.u64(1..20),
            4 => self.rng.u64(1..400),
            5 if self.one_in(10) => self.rng.u64(1..100_000),
            6 if self.one_in(3) => world.until_an_end(self.rng.usize(..9)).unwrap_or(1),
            _ => next.unwrap_or(1),
        };
        Action::Pass(if calm { ms.min(next.unwrap_or(ms)) } else { ms })
    }

    fn fault(&mut self, fault: Fault, flights: usize, mails: usize) -> Option<Action> {
        let client = self.rng.usize(..self.clients);
        let (gate, key) = (self.rng.usize(..3), self.rng.usize(..3));
        match fault {
            Fault::Late => Some(Action::Act { client }),
            Fault::LostCalls if flights > 0 => Some(match self.rng.bool() {
                true => Action::Arrive {
                    flight: self.rng.usize(..flights),
                },
                false => Action::Lose {
                    flight: self.rng.usize(..flights),
                },
            }),
            Fault::LostMessages if mails > 0 => Some(match self.rng.bool() {
                true => Action::LoseMail {
                    mail: self.rng.usize(..mails),
                },
                false => Action::Duplicate {
                    mail: self.rng.usize(..mails),
                },
            }),
            Fault::Deaths if self.one_in(4) => Some(Action::Die { client }),
            Fault::Drops => Some(match self.rng.bool() {
                true => Action::Drop {
                    client,
                    noticed: self.rng.bool(),
                },
                false => Action::Subscribe { client },
            }),
            Fault::Restarts if self.one_in(10) => Some(Action::Restart { empty: true }),
            Fault::OlderState if self.one_in(4) => Some(match self.rng.bool() {
                true => Action::Backup,
                false => Action::Restart { empty: false },
            }),
            Fault::ClockSteps if self.one_in(10) => {
                let ms = [5, 1_000, 3_600_000][self.rng.usize(..3)];
                Some(Action::Step(if self.rng.bool() { ms } else { -ms }))
            }
            Fault::Evictions if self.one_in(4) => Some(match self.rng.u8(..4) {
                0 => Action::Backup,
                1 => Action::Restore { gate, key },
                _ => Action::Evict { gate, key },
            }),
            Fault::FullMemory => Some(Action::Full(self.one_in(3))),
            Fault::Flushes if self.one_in(10) => Some(Action::Flush),
            _ => None,
        }
    }
}

/// What happens in the world of this seed, whether it goes well or not.
pub fn story(scripts: &Scripts, seed: u64) -> String {
    let (scheduler, clients, calm) = Scheduler::new(seed);
    let mut world = World::new(scripts, clients).unwrap_or_else(|error| panic!("{error}"));
    world.story = Some(Vec::new());
    let mut scheduler = scheduler;
    let result = scheduler.live(&mut world, &mut Vec::new(), calm);
    let lines = world.story.unwrap_or_default().join("\n");
    match result {
        Ok(()) => format!("{lines}\nall is well"),
        Err(violation) => format!("{lines}\n{} is broken: {}", violation.rule, violation.text),
    }
}

/// The violation that these actions lead to, if any.
fn replay(
    scripts: &Scripts,
    clients: usize,
    actions: &[Action],
    story: bool,
) -> (Option<Violation>, Vec<String>) {
    let mut world = World::new(scripts, clients).unwrap_or_else(|error| panic!("{error}"));
    world.story = story.then(Vec::new);
    let broken = actions.iter().find_map(|action| world.apply(action).err());
    (broken, world.story.unwrap_or_default())
}

impl Failure {
    /// The same failure by fewer actions: leaves out what it can, in ever smaller pieces, until nothing more can go or it
    /// took too long.
    pub fn shrink(&mut self, scripts: &Scripts) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = self.actions.len();
            let mut size = before / 2;
            while size > 0 {
                self.leave_out(scripts, size, deadline);
                size /= 2;
            }
            if self.actions.len() == before || Instant::now() > deadline {
                return;
            }
        }
    }

    /// Leaves out pieces of this size.
    fn leave_out(&mut self, scripts: &Scripts, size: usize, deadline: Instant) {
        let mut at = 0;
        while at < self.actions.len() && Instant::now() < deadline {
            let mut fewer = self.actions.clone();
            fewer.drain(at..(at + size).min(fewer.len()));
            match replay(scripts, self.clients, &fewer, false) {
                (Some(violation), _) if violation.rule == self.violation.rule => {
                    (self.actions, self.violation) = (fewer, violation);
                }
                _ => at += size,
            }
        }
    }

    /// What happened, for reading.
    pub fn story(&self, scripts: &Scripts) -> String {
        let (_, lines) = replay(scripts, self.clients, &self.actions, true);
        format!(
            "{} is broken in the world of seed {}:\n{}\n\n{}\n",
            self.violation.rule,
            self.seed,
            self.violation.text,
            lines.join("\n")
        )
    }
}
