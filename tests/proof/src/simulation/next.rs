//! Chooses at random what happens next in a world.

use super::STEPS;
use super::fault::Fault;
use super::scheduler::{LEASES, Scheduler};
use crate::action::{Action, Forgery, Lie, Refusal, Signature};
use crate::client::{Patience, Thread};
use crate::ledger::Violation;
use crate::model::AskOne;
use crate::world::World;

const WAITS: [u64; 9] = [0, 0, 0, 30, 300, 5_000, 5_000, 20_000, 200_000];
const PATIENCE_OF_WAITS: [Patience; 8] = [
    Patience::None,
    Patience::None,
    Patience::For(30),
    Patience::For(300),
    Patience::For(5_000),
    Patience::For(20_000),
    Patience::Forever,
    Patience::Forever,
];

/// How far an invented ticket is ahead of the server's clock, in µs: near, at most a minute, beyond, a year,
/// and as far as possible.
const AHEAD: [i64; 8] =
    [-1_000_000, 1, 30_000_000, 60_000_000, 60_000_001, 3_700_000_000, 31_536_000_000_000, i64::MAX];

/// The most keys in one slot.
const MOST_KEYS: usize = 6;

impl Scheduler {
    /// Runs a world to its end.
    pub(super) fn live(
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
        // The faults end, and all clients leave.
        self.faults.clear();
        self.leaving = true;
        step(world, Action::Full(false))?;
        step(world, Action::TakeOver { loses: false })?;
        for slot in 0..3 {
            step(world, Action::EndMove { slot })?;
        }
        for client in 0..self.setup.clients {
            step(world, Action::Resume { client })?;
            step(world, Action::Subscribe { client })?;
        }
        step(world, Action::Calm)?;
        for _ in 0..2 * STEPS {
            let action = self.next(world, true);
            step(world, action)?;
            let mut clients = 0..self.setup.clients;
            if world.is_prompt(world.mono) && clients.all(|client| world.business(client) == (0, 0)) {
                break;
            }
        }
        let latest = world.gates.iter().map(|gate| gate.ledger.latest).max().unwrap_or(0);
        step(world, Action::Pass(latest.saturating_sub(world.now()) + 63_000))?;
        step(world, Action::End)
    }

    fn next(&mut self, world: &World, calm: bool) -> Action {
        if let Some(action) = self.follow.pop() {
            return action;
        }
        let (flights, mails) = (world.flight_count(), world.mails());
        let due = world.due().next();
        // A permit is dropped exactly when its renewal is due.
        if let Some((client, Thread::Renewal)) = due
            && self.one_in(8)
        {
            let permit = self.rng.usize(..8);
            return Action::DropPermit { client, permit };
        }
        if calm || !self.has(Fault::Late) {
            // Calls and messages arrive at once.
            if mails > 0 && !(self.has(Fault::LostMessages) && self.one_in(4)) {
                return Action::Read { mail: 0 };
            }
            if flights > 0 && !(self.has(Fault::LostCalls) && self.one_in(8)) {
                return Action::Prompt { flight: 0 };
            }
            if let Some((client, _)) = due {
                return Action::Act { client, thread: 0 };
            }
        }
        if !calm && !self.faults.is_empty() && self.one_in(self.seldom) {
            let fault = self.faults[self.rng.usize(..self.faults.len())];
            if let Some(action) = self.fault(fault, flights, mails) {
                return action;
            }
        }
        if calm && self.has(Fault::Deaths) && self.one_in(40) {
            let client = self.rng.usize(..self.setup.clients);
            return Action::Die { client };
        }
        if self.many_join && !self.leaving && self.one_in(200) && self.one_in(2) {
            return Action::Collect {
                client: self.rng.usize(..self.setup.clients),
                count: self.rng.usize(95..210),
                lease_ms: LEASES[self.rng.usize(..LEASES.len())],
                at_least_ms: self.at_least_ms(),
            };
        }
        if self.many_join && !self.leaving && self.one_in(200) {
            return Action::ManyJoin {
                gate: self.rng.usize(..3),
                count: self.rng.usize(95..210),
                lease_ms: LEASES[self.rng.usize(..LEASES.len())],
                wait_ms: WAITS[self.rng.usize(..WAITS.len())],
                max_waiting: if self.bounded { [0, 3, 50, 100, 101, 150][self.rng.usize(..6)] } else { 0 },
                head_start_ms: self.head_start_ms(),
                at_least_ms: self.at_least_ms(),
            };
        }
        self.ordinary(world, calm)
    }

    fn ordinary(&mut self, world: &World, calm: bool) -> Action {
        let client = self.rng.usize(..self.setup.clients);
        let (had, busy) = world.business(client);
        let lease_ms = LEASES[self.rng.usize(..LEASES.len())];
        let permit = self.rng.usize(..had.max(1));
        if self.leaving {
            return match self.rng.u8(..4) {
                0 if had > 0 => Action::DropPermit { client, permit },
                1 if busy > 0 && self.one_in(8) => Action::Cancel { client, caller: 0 },
                _ => self.pass(world, true),
            };
        }
        match self.rng.u8(..20) {
            0..=6 if busy < 3 && had < 3 && self.alike.is_none() && self.one_in(6) => {
                self.want_all(client, lease_ms)
            }
            0..=6 if busy < 3 && had < 3 => self.want(client, lease_ms),
            0..=8 if had > 0 => Action::DropPermit { client, permit },
            9 if had > 0 => Action::Look { client, permit },
            10 if had > 0 => {
                Action::Refresh { client, permit, lease_ms: (!self.one_in(3)).then_some(lease_ms) }
            }
            11 if had > 0 && self.one_in(2) => Action::Keep { client, permit, keep: self.rng.u32(1..3) },
            11 | 12 if busy > 0 && self.one_in(4) => {
                Action::Cancel { client, caller: self.rng.usize(..busy) }
            }
            12 | 13 => self.of_others(client, lease_ms),
            14 if self.one_in(2) => self.about_the_latch(client),
            15 | 16 if world.flight_count() > 0 => {
                let flight = self.rng.usize(..world.flight_count());
                match self.rng.u8(..3) {
                    0 => Action::Arrive { flight },
                    1 => Action::Return { flight },
                    _ => Action::Prompt { flight },
                }
            }
            17 if world.mails() > 0 => Action::Read { mail: self.rng.usize(..world.mails()) },
            18 if !calm => Action::Act { client, thread: self.rng.usize(..4) },
            _ => self.pass(world, calm),
        }
    }

    /// Calls by third parties, and changes to a semaphore that affect all clients.
    fn of_others(&mut self, client: usize, lease_ms: u64) -> Action {
        let gate = self.rng.usize(..3);
        match self.rng.u8(..24) {
            0 | 1 => Action::Lookup { gate, client },
            2 | 3 => Action::Inspect { gate },
            4..=6 => Action::Stale { gate, client, refresh: self.one_in(2) },
            7 => Action::Resize {
                gate: self.rng.usize(..2),
                limit: [1, 2, 3, 4, 0, 0][self.rng.usize(..6)],
                expected: [None, None, Some(2), Some(3), Some(0)][self.rng.usize(..5)],
            },
            8..=10 => Action::TryAll { name: self.rng.usize(..2), asked: self.asked(lease_ms) },
            11..=13 => Action::FreeAll { name: self.rng.usize(..2) },
            14..=17 => Action::Born { client },
            18 => self.invent(gate),
            19 => Action::Confirm { gate },
            _ => self.pass_a_little(),
        }
    }

    fn invent(&mut self, gate: usize) -> Action {
        Action::Invent {
            gate,
            ahead: AHEAD[self.rng.usize(..AHEAD.len())],
            wait_ms: WAITS[self.rng.usize(..5)],
            max_waiting: self.max_waiting(),
            head_start_ms: self.head_start_ms(),
        }
    }

    fn want(&mut self, client: usize, lease_ms: u64) -> Action {
        let alike = self.alike;
        let (limit, lease) = alike.unwrap_or_default();
        let lease_ms = match alike {
            Some(_) if !self.one_in(12) => lease,
            _ if self.one_in(24) => 0,
            _ => lease_ms,
        };
        let patience = PATIENCE_OF_WAITS[self.rng.usize(..PATIENCE_OF_WAITS.len())];
        Action::Want {
            client,
            gate: match alike {
                Some(_) => 0,
                None => [0, 0, 0, 1, 2][self.rng.usize(..5)],
            },
            permits: match alike {
                Some(_) if self.one_in(12) => Some(2.min(limit)),
                Some(_) => Some(1),
                None => [Some(1), Some(1), Some(2), Some(3), None][self.rng.usize(..5)],
            },
            limit: match alike {
                Some(_) => limit,
                None => [3, 3, 3, 1, 2, 4, 0][self.rng.usize(..7)],
            },
            strict: self.one_in(12),
            lease_ms,
            renewed: self.one_in(2),
            own_id: if self.own { !self.one_in(8) } else { self.one_in(4) },
            on_lost: self.one_in(2),
            patience,
            max_waiting: self.max_waiting(),
            head_start_ms: self.head_start_ms(),
            at_least_ms: self.at_least_ms(),
        }
    }

    fn want_all(&mut self, client: usize, lease_ms: u64) -> Action {
        Action::WantAll {
            client,
            asked: self.asked(lease_ms),
            renewed: self.one_in(2),
            patience: PATIENCE_OF_WAITS[self.rng.usize(..PATIENCE_OF_WAITS.len())],
            max_waiting: self.max_waiting(),
            head_start_ms: self.head_start_ms(),
        }
    }

    /// The requests to each of several semaphores.
    fn asked(&mut self, lease_ms: u64) -> Vec<AskOne> {
        let one = |_| AskOne {
            permits: self.rng.u32(1..4),
            limit: [3, 3, 3, 1, 2, 4, 0][self.rng.usize(..7)],
            lease_ms: if self.one_in(24) { 0 } else { lease_ms },
            at_least_ms: self.at_least_ms(),
        };
        (0..2).map(one).collect()
    }

    fn about_the_latch(&mut self, client: usize) -> Action {
        match self.rng.u8(..12) {
            0..=5 => Action::Watch { client, wait_ms: [None, Some(300), Some(20_000)][self.rng.usize(..3)] },
            6..=8 => Action::CountDown { name: self.rng.usize(..3) },
            9 => Action::Count,
            10 => Action::DeleteLatch,
            _ => self.pass_a_little(),
        }
    }

    fn pass_a_little(&mut self) -> Action {
        Action::Pass(self.rng.u64(1..20))
    }

    /// Time passes: a little, or until the next action is due. In a calm world not beyond that.
    fn pass(&mut self, world: &World, calm: bool) -> Action {
        let mono = world.mono;
        let next = world.next_time().map(|at| (at - mono).div_ceil(1_000));
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

    /// The next fault, if it is possible now.
    fn fault(&mut self, fault: Fault, flights: usize, mails: usize) -> Option<Action> {
        let client = self.rng.usize(..self.setup.clients);
        let (gate, key) = (self.rng.usize(..3), self.rng.usize(..3));
        let flight = self.rng.usize(..flights.max(1));
        match fault {
            Fault::Late => Some(Action::Act { client, thread: self.rng.usize(..4) }),
            Fault::LostCalls if flights > 0 => Some(self.lose_call(flight)),
            Fault::LostMessages if mails > 0 => Some(if self.rng.bool() {
                Action::LoseMail { mail: self.rng.usize(..mails) }
            } else {
                Action::Duplicate { mail: self.rng.usize(..mails) }
            }),
            Fault::Deaths if self.one_in(4) => Some(Action::Die { client }),
            Fault::Drops => Some(if self.rng.bool() {
                Action::Drop { client, by_server: self.rng.bool(), by_client: self.rng.bool() }
            } else {
                Action::Subscribe { client }
            }),
            Fault::Restarts if self.one_in(10) => Some(Action::Restart { empty: true }),
            Fault::OlderState if self.one_in(4) => {
                Some(if self.rng.bool() { Action::Backup } else { Action::Restart { empty: false } })
            }
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
            Fault::Forgeries => {
                Some(Action::Forge { client, caller: self.rng.usize(..4), forgery: self.forgery() })
            }
            Fault::Revocations if self.one_in(4) => Some(Action::Revoke { gate, client }),
            Fault::Suspensions => {
                Some(if self.one_in(3) { Action::Suspend { client } } else { Action::Resume { client } })
            }
            Fault::Moves => Some(self.move_slot(key)),
            Fault::Failovers => Some(match self.rng.u8(..6) {
                0 => Action::NodeDies { node: self.rng.usize(..3) },
                1 => Action::Backup,
                _ => Action::TakeOver { loses: self.rng.bool() },
            }),
            Fault::WallSteps => {
                let ms = [5, 1_000, 3_600_000][self.rng.usize(..3)];
                let ms = if self.rng.bool() { ms } else { -ms };
                Some(Action::StepWall { client, ms })
            }
            _ => None,
        }
    }

    /// A slot begins to move, perhaps all its keys at once, or one key moves, or the rest.
    fn move_slot(&mut self, key: usize) -> Action {
        let slot = self.rng.usize(..3);
        match self.rng.u8(..8) {
            0 => {
                if self.one_in(2) {
                    self.follow = (0..MOST_KEYS).map(|key| Action::MoveKey { slot, key }).collect();
                }
                Action::BeginMove { slot, to: self.rng.usize(..3) }
            }
            1..=4 => Action::MoveKey { slot, key },
            _ => Action::EndMove { slot },
        }
    }

    /// A call, or its reply, does not arrive. A call that is repeated then cannot be sent, perhaps.
    fn lose_call(&mut self, flight: usize) -> Action {
        let is_lost = self.rng.bool();
        let why = [Refusal::Unreachable, Refusal::NotReady, Refusal::Forbidden][self.rng.usize(..3)];
        let broken = Action::Break { flight, is_lost };
        let refused = Action::Refuse { flight, why };
        match self.rng.u8(..8) {
            0 | 1 => {
                if self.one_in(4) {
                    self.follow = vec![refused, broken];
                }
                Action::Arrive { flight }
            }
            2 => Action::Lose { flight },
            3 | 4 => {
                if self.one_in(4) {
                    self.follow = vec![refused];
                }
                broken
            }
            5 | 6 => Action::GiveUp { flight, is_kept: is_lost },
            _ => refused,
        }
    }

    fn forgery(&mut self) -> Forgery {
        let number = self.rng.usize(..64);
        match self.rng.u8(..6) {
            0 | 1 => Forgery::Again(number),
            2 => Forgery::Changed(number),
            _ => Forgery::New(
                [Lie::Granted, Lie::AskNow, Lie::Revoked][self.rng.usize(..3)],
                match self.rng.u8(..3) {
                    0 => Signature::None,
                    1 => Signature::AllBut(number),
                    _ => Signature::OfAnother(number),
                },
            ),
        }
    }
}
