//! What went wrong in a world, and the shortest story of it.

use crate::action::Action;
use crate::ledger::Violation;
use crate::scripts::Scripts;
use crate::world::World;
use std::time::{Duration, Instant};

/// How long a story is shrunk.
const PATIENCE: Duration = Duration::from_secs(20);

/// What went wrong.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub violation: Violation,
    /// All that happened, up to there.
    pub actions: Vec<Action>,
    pub(super) clients: usize,
}

/// The violation that these actions lead to, if any.
fn replay(scripts: &Scripts, clients: usize, actions: &[Action], story: bool) -> (Option<Violation>, Vec<String>) {
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
