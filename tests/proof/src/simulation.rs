//! A scheduler with a random seed: decides what happens next in a world, and prints the shortest story of a
//! failure that it finds.

mod failure;
mod fault;
mod next;
mod scheduler;

use crate::action::Action;
use crate::client::Patience;
use crate::ledger::Check;
use crate::scripts::Scripts;
use crate::world::{Count, Setup, World};
pub use failure::Failure;
use scheduler::Scheduler;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many steps a world has before all clients end.
pub const STEPS: usize = 1_500;

fn new_world(scripts: &Scripts, setup: Setup) -> World {
    World::new(scripts, setup).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs the world of this seed.
///
/// # Errors
/// The first broken promise.
pub fn run(scripts: &Scripts, seed: u64) -> Result<(usize, Count), Box<Failure>> {
    let (mut scheduler, calm) = Scheduler::new(seed);
    let mut actions = Vec::new();
    let mut world = new_world(scripts, scheduler.setup);
    let result = scheduler.live(&mut world, &mut actions, calm);
    match result {
        Ok(()) => Ok((actions.len(), world.count)),
        Err(violation) => Err(Box::new(Failure { seed, violation, actions, setup: scheduler.setup })),
    }
}

/// Runs the worlds from this seed on, on all cores, while `more` returns true. Each core passes the number of
/// its steps to `more`.
///
/// # Errors
/// The first broken promise.
pub fn run_worlds(
    scripts: &Scripts,
    first: u64,
    more: impl Fn(usize) -> bool + Sync,
) -> Result<(usize, Count), Box<Failure>> {
    let (next, stopped) = (AtomicU64::new(first), AtomicBool::new(false));
    let work = || -> Result<(usize, Count), Box<Failure>> {
        let (mut steps, mut sum) = (0, Count::default());
        while !stopped.load(Ordering::Relaxed) && more(steps) {
            let world = run(scripts, next.fetch_add(1, Ordering::Relaxed));
            let (taken, count) = world.inspect_err(|_| stopped.store(true, Ordering::Relaxed))?;
            steps += taken;
            sum.add(count);
        }
        Ok((steps, sum))
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let mut all = (0, Count::default());
        for thread in threads {
            let (steps, count) = thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            all.0 += steps;
            all.1.add(count);
        }
        Ok(all)
    })
}

/// A rare sequence of events: a waiter is granted a permit, which is revoked before the waiter has read the
/// grant message. The waiter asks again and the reply puts it in line. Only then does it read the grant
/// message.
///
/// # Errors
/// The broken promise.
pub fn revoke_before_it_is_read(scripts: &Scripts) -> Check {
    let want = |client, patience| Action::Want {
        client,
        gate: 1,
        permits: Some(1),
        limit: 1,
        strict: false,
        lease_ms: 30_000,
        renewed: false,
        own_id: false,
        on_lost: false,
        patience,
        max_waiting: 0,
        head_start_ms: 0,
        at_least_ms: 0,
    };
    let answered = Action::Prompt { flight: 0 };
    let goes_on = |client| Action::Act { client, thread: 0 };
    let joins =
        |client| [want(client, Patience::Forever), answered.clone(), goes_on(client), answered.clone()];
    let mut actions = vec![want(0, Patience::None), answered.clone()];
    actions.extend([joins(1), joins(2)].concat());
    actions.extend([Action::DropPermit { client: 0, permit: 0 }, answered.clone()]);
    actions.extend([Action::Revoke { gate: 1, client: 1 }, Action::Pass(1)]);
    actions.extend([
        Action::Drop { client: 1, by_server: false, by_client: true },
        Action::Subscribe { client: 1 },
    ]);
    actions.extend([goes_on(1), answered, Action::Read { mail: 0 }, goes_on(1), Action::Pass(1)]);
    let setup = Setup { clients: 3, is_cluster: false, shares_connections: false, has_replicas: false };
    let mut world = new_world(scripts, setup);
    actions.iter().try_for_each(|action| world.apply(action))
}

/// The story of the world of this seed, whether it fails or not.
pub fn story(scripts: &Scripts, seed: u64) -> String {
    let (mut scheduler, calm) = Scheduler::new(seed);
    let mut world = new_world(scripts, scheduler.setup);
    world.story = Some(Vec::new());
    let result = scheduler.live(&mut world, &mut Vec::new(), calm);
    let lines = world.story.unwrap_or_default().join("\n");
    match result {
        Ok(()) => format!("{lines}\nno promise was broken"),
        Err(violation) => format!("{lines}\n{} is broken: {}", violation.rule, violation.text),
    }
}
