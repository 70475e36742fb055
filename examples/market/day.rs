//! The course of the demo: the market opens, a holder and a waiter are killed, the market closes, and the
//! record is checked.

use crate::audit::{self, DeadHolder, DeadWaiter};
use crate::record::{Event, Record};
use crate::screen::{Screen, seconds};
use crate::workers::Workers;
use crate::{LEASE, LIMIT, MARKET, Outcome, WORKERS, open_gate};
use luagate::Semaphore;
use luagate::inspection::Inspection;
use std::thread;
use std::time::{Duration, Instant};

/// The time between two inspections.
const TICK: Duration = Duration::from_millis(100);

/// A worker that is about to be killed may have moved on before the signal arrives. Then another one is
/// chosen.
const ATTEMPTS: u32 = 3;

pub fn run() -> Outcome {
    let mut day = Day::open()?;
    day.watch_for(Duration::from_secs(3))?;
    let holder = day.kill_a_holder()?;
    day.watch_for(LEASE + Duration::from_secs(2))?;
    let waiter = day.kill_a_waiter()?;
    day.watch_for(Duration::from_secs(4))?;
    day.close()?;
    day.report(&holder, &waiter)
}

struct Day {
    market: Semaphore,
    workers: Workers,
    record: Record,
    screen: Screen,
    remains: Option<Remains>,
    /// The largest delay of an inspection so far. It shows how busy the machine is and how far away the
    /// server is.
    latest: Duration,
}

/// The id of the last killed worker, which the server still stores, and the line to print when it is gone.
struct Remains {
    id: String,
    when_gone: String,
}

impl Day {
    fn open() -> Outcome<Day> {
        let prefix = format!("market:{}", uuid::Uuid::new_v4().simple());
        let gate = open_gate(&prefix, "market")?;
        let record = Record::new()?;
        let mut screen = Screen::new();
        screen.note(&format!(
            "{WORKERS} processes ask for permits of {MARKET}; at most {LIMIT} may be inside"
        ))?;
        Ok(Day {
            market: gate.semaphore(MARKET, LIMIT),
            workers: Workers::start(WORKERS, &prefix, &record)?,
            record,
            screen,
            remains: None,
            latest: Duration::ZERO,
        })
    }

    fn watch_for(&mut self, time: Duration) -> Outcome {
        let since = Instant::now();
        while since.elapsed() < time {
            let due = Instant::now() + TICK;
            thread::sleep(TICK);
            let state = self.market.inspect()?;
            self.latest = self.latest.max(due.elapsed());
            self.workers.check()?;
            self.note_what_is_gone(&state)?;
            self.screen.show(&state)?;
        }
        Ok(())
    }

    fn note_what_is_gone(&mut self, state: &Inspection) -> Outcome {
        let holders = state.holders.iter().map(|holder| &holder.id);
        let waiters = state.waiters.iter().map(|waiter| &waiter.id);
        let mut known = holders.chain(waiters);
        if let Some(gone) = self.remains.take_if(|dead| known.all(|id| *id != dead.id)) {
            self.screen.note(&gone.when_gone)?;
        }
        Ok(())
    }

    fn kill_a_holder(&mut self) -> Outcome<DeadHolder> {
        for _ in 0..ATTEMPTS {
            let before = self.market.inspect()?;
            // The holder whose lease ends last was granted last, so it stays longest.
            let victim = before.holders.last().ok_or("no worker is inside")?;
            let (death, after) = self.kill(&victim.id)?;
            let held = after.holders.iter().find(|holder| holder.id == victim.id);
            if let Some(lease_left) = held.and_then(|holder| holder.remaining) {
                let name = &death.worker;
                let what = format!("is killed inside, with {} of its lease left", seconds(lease_left));
                self.screen.note(&format!("{name} {what}"))?;
                self.remember(&victim.id, format!("the lease of {name} has ended"));
                let died = death.at;
                return Ok(DeadHolder { died, lease_left });
            }
            self.wait_after_a_miss(&death.worker)?;
        }
        Err("each worker that was chosen to be killed inside had left before the signal".into())
    }

    fn kill_a_waiter(&mut self) -> Outcome<DeadWaiter> {
        for _ in 0..ATTEMPTS {
            let before = self.market.inspect()?;
            // The third in line is not granted at once, and there are others behind it.
            let victim = before.waiters.get(2).ok_or("fewer than three workers wait")?;
            let (death, after) = self.kill(&victim.id)?;
            let place = after.waiters.iter().position(|w| w.id == victim.id);
            if let Some(place) = place {
                let name = &death.worker;
                let behind = after.waiters.len() - place - 1;
                let what = format!("is killed in line, with {place} before it and {behind} behind");
                self.screen.note(&format!("{name} {what}"))?;
                self.remember(&victim.id, format!("the line has passed {name}"));
                let (died, ticket) = (death.at, victim.ticket);
                return Ok(DeadWaiter { died, ticket });
            }
            self.wait_after_a_miss(&death.worker)?;
        }
        Err("each worker that was chosen to be killed in line was granted before the signal".into())
    }

    /// Waits until nothing is left of a worker that was killed too late.
    fn wait_after_a_miss(&mut self, name: &str) -> Outcome {
        let what = "had moved on before it was killed; another one follows";
        self.screen.note(&format!("{name} {what}"))?;
        self.watch_for(LEASE)
    }

    fn remember(&mut self, id: &str, when_gone: String) {
        let id = id.to_owned();
        self.remains = Some(Remains { id, when_gone });
    }

    /// Kills the worker with this id, and inspects what the server still stores.
    fn kill(&mut self, id: &str) -> Outcome<(Event, Inspection)> {
        let (name, _) = id.split_once('/').ok_or("an id without a label")?;
        let death = self.workers.kill(name, &self.record)?;
        self.screen.mark_killed(name);
        Ok((death, self.market.inspect()?))
    }

    fn close(&mut self) -> Outcome {
        self.screen.note("the market closes")?;
        self.workers.finish()
    }

    fn report(mut self, holder: &DeadHolder, waiter: &DeadWaiter) -> Outcome {
        let promises = audit::read(&self.record.read()?, holder, waiter, self.latest);
        self.screen.line("\nBy the record of every entry and exit:")?;
        for promise in &promises {
            self.screen.line(&promise.to_string())?;
        }
        match promises.iter().filter(|promise| !promise.kept).count() {
            0 => Ok(()),
            1 => Err("a promise was broken".into()),
            broken => Err(format!("{broken} promises were broken").into()),
        }
    }
}
