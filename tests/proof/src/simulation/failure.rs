//! A failure in a world, and its shortest story.

use super::new_world;
use crate::action::Action;
use crate::ledger::Violation;
use crate::scripts::Scripts;
use crate::world::{Setup, World};
use std::time::{Duration, Instant};

/// The time limit for shrinking a story.
const PATIENCE: Duration = Duration::from_secs(20);

/// A failure.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub violation: Violation,
    /// All actions up to the failure.
    pub actions: Vec<Action>,
    pub(super) setup: Setup,
}

/// The violation that these actions cause, if any.
fn replay(mut world: World, actions: &[Action], story: bool) -> (Option<Violation>, Vec<String>) {
    world.story = story.then(Vec::new);
    let broken = actions.iter().find_map(|action| world.apply(action).err());
    (broken, world.story.unwrap_or_default())
}

impl Failure {
    /// Finds fewer actions with the same failure: leaves out ever smaller pieces until nothing more can be
    /// left out, or the time limit is reached.
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
            match replay(new_world(scripts, self.setup), &fewer, false) {
                (Some(violation), _) if violation.rule == self.violation.rule => {
                    (self.actions, self.violation) = (fewer, violation);
                }
                _ => at += size,
            }
        }
    }

    /// The story as readable text.
    pub fn story(&self, scripts: &Scripts) -> String {
        let (_, lines) = replay(new_world(scripts, self.setup), &self.actions, true);
        format!(
            "{} is broken in the world of seed {}:\n{}\n\n{}\n",
            self.violation.rule,
            self.seed,
            self.violation.text,
            lines.join("\n")
        )
    }
}
