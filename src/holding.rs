//! What this process knows of a permit that it holds: shared by the permit and the thread that renews it.

use crate::connections::lock;
use crate::error::Lost;
use crate::lease::Deadline;
use crate::name::Keys;
use crate::scripts::semaphore::Grant;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Called once when a permit turns out to be lost.
pub(crate) type OnLost = Arc<dyn Fn(&Lost) + Send + Sync>;

/// What was agreed on a permit's lease.
#[derive(Clone)]
pub(crate) struct Terms {
    /// The lease that a refresh asks for; 0 is permanent.
    pub(crate) lease_ms: u64,
    pub(crate) renewed: bool,
    pub(crate) on_lost: Option<OnLost>,
}

pub(crate) struct Holding {
    pub(crate) keys: Keys,
    pub(crate) id: String,
    pub(crate) fence: u64,
    pub(crate) terms: Terms,
    life: Mutex<Life>,
}

struct Life {
    permits: u32,
    deadline: Deadline,
    /// Released, handed on, or known to be lost: nothing brings it back.
    over: bool,
    /// Where the renewal thread has it in its plan.
    planned: Option<(Instant, u64)>,
}

impl Holding {
    pub(crate) fn new(
        keys: &Keys,
        id: &str,
        grant: &Grant,
        deadline: Deadline,
        terms: &Terms,
    ) -> Holding {
        Holding {
            keys: keys.clone(),
            id: id.to_owned(),
            fence: grant.fence,
            terms: terms.clone(),
            life: Mutex::new(Life {
                permits: grant.permits,
                deadline,
                over: false,
                planned: None,
            }),
        }
    }

    pub(crate) fn permits(&self) -> u32 {
        lock(&self.life).permits
    }

    pub(crate) fn set_permits(&self, permits: u32) {
        lock(&self.life).permits = permits;
    }

    pub(crate) fn deadline(&self) -> Deadline {
        lock(&self.life).deadline
    }

    /// Zero when it is lost, `None` when it is permanent.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let life = lock(&self.life);
        if life.over {
            return Some(Duration::ZERO);
        }
        life.deadline.remaining()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// A refresh was confirmed. Whoever saw this permit as lost must never see it alive again, so an end that has
    /// passed in the meantime stays: then this is false.
    pub(crate) fn extend(&self, deadline: Deadline) -> bool {
        let mut life = lock(&self.life);
        if life.over || life.deadline.is_past() {
            return false;
        }
        life.deadline = deadline;
        true
    }

    /// It is over: true for the first who says so.
    pub(crate) fn end(&self) -> bool {
        !std::mem::replace(&mut lock(&self.life).over, true)
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.life).over
    }

    pub(crate) fn plan(&self, at: Option<(Instant, u64)>) -> Option<(Instant, u64)> {
        std::mem::replace(&mut lock(&self.life).planned, at)
    }

    pub(crate) fn lost(&self) -> Lost {
        Lost {
            id: self.id.clone(),
        }
    }
}
