//! A day at the market: it opens, one dies inside, one dies in line, it closes, and the record is read.

use crate::audit::{self, DeadHolder, DeadWaiter};
use crate::crew::Crew;
use crate::record::{Event, Record};
use crate::screen::Screen;
use crate::{LIMIT, MARKET, Outcome, WORKERS, open_gate};
use luagate::{Inspection, Semaphore};
use std::thread;
use std::time::{Duration, Instant};

const HOLDER_DIES: Duration = Duration::from_secs(3);
const WAITER_DIES: Duration = Duration::from_secs(8);
const CLOSES: Duration = Duration::from_secs(12);

/// Between two looks.
const TICK: Duration = Duration::from_millis(100);

/// Whoever is to be killed goes on meanwhile, so the signal may come too late; then another one is chosen.
const ATTEMPTS: u32 = 3;

pub fn run() -> Outcome {
    let mut day = Day::open()?;
    day.watch_until(HOLDER_DIES)?;
    let holder = day.kill_a_holder()?;
    day.watch_until(WAITER_DIES)?;
    let waiter = day.kill_a_waiter()?;
    day.watch_until(CLOSES)?;
    day.close()?;

    let promises = audit::read(&day.record.read()?, &holder, &waiter);
    for promise in &promises {
        println!("{promise}");
    }
    match promises.iter().filter(|promise| !promise.kept).count() {
        0 => Ok(()),
        1 => Err("a promise was broken".into()),
        broken => Err(format!("{broken} promises were broken").into()),
    }
}

struct Day {
    market: Semaphore,
    record: Record,
    crew: Crew,
    screen: Screen,
    opened: Instant,
    dead: Option<Dead>,
}

/// Who was killed last, for as long as the semaphore knows it, and what to say when it does not.
struct Dead {
    id: String,
    farewell: String,
}

impl Day {
    fn open() -> Outcome<Day> {
        let prefix = format!("market:{}", uuid::Uuid::new_v4().simple());
        let gate = open_gate(&prefix, "market")?;
        let record = Record::new()?;
        let mut day = Day {
            market: gate.semaphore(MARKET, LIMIT),
            crew: Crew::start(WORKERS, &prefix, &record)?,
            record,
            screen: Screen::new(),
            opened: Instant::now(),
            dead: None,
        };
        day.screen.note(&format!(
            "{WORKERS} processes want into {MARKET}; at most {LIMIT} may be inside"
        ))?;
        Ok(day)
    }

    fn watch_until(&mut self, end: Duration) -> Outcome {
        while self.opened.elapsed() < end {
            self.crew.check()?;
            let state = self.market.inspect()?;
            self.see_the_dead_off(&state)?;
            self.screen.show(&state)?;
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Says when nothing is left of the one who was killed last.
    fn see_the_dead_off(&mut self, state: &Inspection) -> Outcome {
        let holds = state.holders.iter().map(|holder| &holder.id);
        let mut known = holds.chain(state.waiters.iter().map(|waiter| &waiter.id));
        match self.dead.take_if(|dead| !known.any(|id| *id == dead.id)) {
            Some(dead) => self.screen.note(&dead.farewell),
            None => Ok(()),
        }
    }

    fn kill_a_holder(&mut self) -> Outcome<DeadHolder> {
        for _ in 0..ATTEMPTS {
            // Whose lease ends last came in last, and so will stay inside longest.
            let state = self.market.inspect()?;
            let victim = state.holders.last().ok_or("nobody is inside")?;
            let (death, state) = self.kill(&victim.id)?;
            let found = state.holders.iter().find(|holder| holder.id == victim.id);
            if let Some(lease_left) = found.and_then(|holder| holder.remaining) {
                let name = &death.worker;
                self.screen.note(&format!(
                    "{name} is killed inside; its lease has {lease_left:.2?} left"
                ))?;
                self.dead = Some(Dead {
                    farewell: format!("the lease of {name} has ended"),
                    id: victim.id.clone(),
                });
                return Ok(DeadHolder { death, lease_left });
            }
        }
        Err("whoever was to be killed inside had just left, each time".into())
    }

    fn kill_a_waiter(&mut self) -> Outcome<DeadWaiter> {
        for _ in 0..ATTEMPTS {
            // The third in line: there is somebody behind it, and some time before it would be granted.
            let state = self.market.inspect()?;
            let victim = state.waiters.get(2).ok_or("nobody waits")?;
            let (death, state) = self.kill(&victim.id)?;
            let place = state.waiters.iter().position(|other| other.id == victim.id);
            if let Some(place) = place {
                let behind = state.waiters.len() - place - 1;
                let name = &death.worker;
                self.screen.note(&format!(
                    "{name} is killed in line; {place} are before it, {behind} behind"
                ))?;
                self.dead = Some(Dead {
                    farewell: format!("the line has passed {name}"),
                    id: victim.id.clone(),
                });
                let ticket = victim.ticket;
                return Ok(DeadWaiter { death, ticket });
            }
        }
        Err("whoever was to be killed in line had just been granted, each time".into())
    }

    /// Kills the worker with this id, and looks what it left.
    fn kill(&mut self, id: &str) -> Outcome<(Event, Inspection)> {
        let (name, _) = id.split_once('/').ok_or("an id without a label")?;
        let death = self.crew.kill(name, &self.record)?;
        let state = self.market.inspect()?;
        self.screen.mark_killed(name);
        Ok((death, state))
    }

    fn close(&mut self) -> Outcome {
        self.screen.note("the market closes")?;
        self.crew.send_home()?;
        self.screen.wipe()
    }
}
