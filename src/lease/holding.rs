//! What this process knows of a permit that it holds: shared by the permit and the thread that renews it.

use crate::error::Lost;
use crate::protocol::lease::{self, Deadline, Moment};
use crate::protocol::name::Keys;
use crate::scripts::ServerTime;
use crate::scripts::semaphore::Grant;
use crate::sync::lock;
use crate::trace;
use crate::transport::servers::Servers;
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
    /// The id is the user's own, so somebody else may hold with it by now.
    pub(crate) own_id: bool,
}

impl Terms {
    /// A permanent lease begins as one of 30 s, so that a permit whose reply was lost comes back by itself.
    pub(crate) fn first_lease_ms(&self) -> u64 {
        match self.lease_ms {
            0 => u64::try_from(lease::DEFAULT.as_millis()).unwrap_or(u64::MAX),
            lease_ms => lease_ms,
        }
    }
}

/// What a thread does for the permits in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Renews them. It waits for replies.
    Renew,
    /// Tells of their loss. It waits for nobody.
    TellLoss,
}

pub(crate) struct Holding {
    pub(crate) keys: Keys,
    pub(crate) id: String,
    pub(crate) fence: u64,
    pub(crate) terms: Terms,
    /// The number of the server that granted it: a thread for each renews.
    pub(crate) lane: usize,
    servers: Arc<Servers>,
    life: Mutex<Life>,
}

#[derive(Clone, Copy)]
struct Life {
    permits: u32,
    deadline: Deadline,
    /// The server's time when it told that.
    told: ServerTime,
    /// Released, handed on, or known to be lost: nothing brings it back.
    over: bool,
    /// It was seen as lost, so it stays so, whatever a clock says later.
    seen_lost: bool,
    /// Nobody looks after it any more: it is being released, or handed on.
    forgotten: bool,
    /// Its renewal was stopped by hand, whatever its terms say.
    unrenewed: bool,
    /// Where the threads that look after it have it in their plans, each at its own place.
    planned: [Option<(Instant, u64)>; 2],
}

impl Life {
    fn planned(&mut self, task: Task) -> &mut Option<(Instant, u64)> {
        let [renew, tell] = &mut self.planned;
        match task {
            Task::Renew => renew,
            Task::TellLoss => tell,
        }
    }
}

impl Holding {
    pub(crate) fn new(
        servers: &Arc<Servers>,
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
            lane: servers.lane(&keys.meta),
            servers: servers.clone(),
            life: Mutex::new(Life {
                permits: grant.permits,
                deadline,
                told: grant.now,
                over: false,
                seen_lost: false,
                forgotten: false,
                planned: [None; 2],
                unrenewed: false,
            }),
        }
    }

    /// The fence, where the id is the user's own: then calls name it, since the id may be in use again when they are carried out.
    pub(crate) fn own_fence(&self) -> Option<u64> {
        self.terms.own_id.then_some(self.fence)
    }

    /// The same holding under other terms, in place of this one.
    pub(crate) fn under(&self, terms: &Terms) -> Holding {
        let mut life = lock(&self.life);
        let before = *life;
        life.over = true; // so that nobody counts it twice
        Holding {
            keys: self.keys.clone(),
            id: self.id.clone(),
            fence: self.fence,
            terms: terms.clone(),
            lane: self.lane,
            servers: self.servers.clone(),
            life: Mutex::new(Life {
                forgotten: false,
                planned: [None; 2],
                ..before
            }),
        }
    }

    /// Whether this process holds it. In a forked child the lock may be held by a thread that does not exist there, so nothing
    /// may be locked.
    pub(crate) fn is_own_process(&self) -> bool {
        self.servers.is_own_process()
    }

    /// 0 in a forked child, which holds nothing.
    pub(crate) fn permits(&self) -> u32 {
        match self.is_own_process() {
            true => lock(&self.life).permits,
            false => 0,
        }
    }

    pub(crate) fn set_permits(&self, permits: u32) {
        lock(&self.life).permits = permits;
    }

    pub(crate) fn deadline(&self) -> Deadline {
        lock(&self.life).deadline
    }

    /// Zero when it is lost and in a forked child, `None` when it is permanent.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        if !self.is_own_process() {
            return Some(Duration::ZERO);
        }
        let mut life = lock(&self.life);
        if life.over || life.seen_lost {
            return Some(Duration::ZERO);
        }
        let left = life.deadline.remaining(self.servers.clock.moment());
        life.seen_lost = left.is_some_and(|left| left.is_zero());
        let is_news = life.seen_lost;
        drop(life);
        if is_news {
            self.tell_lost();
        }
        left
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// A refresh of the permit with this fence was confirmed. Whoever saw this permit as lost must never see it alive
    /// again, and another fence is somebody else's permit: then this is false.
    pub(crate) fn extend(&self, grant: &Grant, deadline: Deadline) -> bool {
        let mut life = lock(&self.life);
        let is_past = life.deadline.is_past(self.servers.clock.moment());
        if grant.fence != self.fence || life.over || life.seen_lost || is_past {
            return false;
        }
        // Replies may come in another order than the calls were carried out in: the last one there counts.
        life.deadline = match grant.now >= life.told {
            true => deadline,
            false => deadline.earlier(life.deadline),
        };
        life.told = life.told.max(grant.now);
        true
    }

    /// A refresh for this lease, sent at `sent`, was not answered. If it was carried out, the end may be an earlier one now.
    pub(crate) fn may_end(&self, sent: Moment, lease_ms: u64) {
        if lease_ms > 0 {
            let mut life = lock(&self.life);
            let end = Deadline::told(sent, Some(Duration::from_millis(lease_ms)));
            life.deadline = life.deadline.earlier(end);
        }
    }

    /// It is over: released, or handed on.
    pub(crate) fn end(&self) {
        lock(&self.life).over = true;
    }

    /// The server says that it is not ours any more: true for the first who hears that it is over.
    pub(crate) fn lose(&self) -> bool {
        let mut life = lock(&self.life);
        let is_first = !std::mem::replace(&mut life.over, true);
        let is_news = is_first && !std::mem::replace(&mut life.seen_lost, true);
        drop(life);
        if is_news {
            self.tell_lost();
        }
        is_first
    }

    /// Runs once for each permit that turns out to be lost, without the lock.
    fn tell_lost(&self) {
        trace::lost(&self.keys, self.fence);
        self.servers.counts.lost.add_one();
    }

    /// Whether the next look at it renews it.
    pub(crate) fn is_renewed(&self) -> bool {
        self.terms.renewed && !lock(&self.life).unrenewed
    }

    /// It is renewed no more.
    pub(crate) fn stop_renewal(&self) {
        lock(&self.life).unrenewed = true;
    }

    /// Whether the renewal thread is still to look after it.
    pub(crate) fn is_watched(&self) -> bool {
        let life = lock(&self.life);
        !life.over && !life.forgotten
    }

    /// Ends the watch, and says where it is in the plan of this task.
    pub(crate) fn forget(&self, task: Task) -> Option<(Instant, u64)> {
        let mut life = lock(&self.life);
        life.forgotten = true;
        life.planned(task).take()
    }

    pub(crate) fn plan(&self, task: Task, at: Option<(Instant, u64)>) -> Option<(Instant, u64)> {
        std::mem::replace(lock(&self.life).planned(task), at)
    }

    pub(crate) fn lost(&self) -> Lost {
        Lost {
            id: self.id.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::counters::Counts;
    use crate::transport::connections::{Connections, Timeouts};
    use crate::transport::servers::Topology;
    use crate::transport::source::Source;

    /// Servers that nobody asks.
    fn nowhere() -> Arc<Servers> {
        let info = redis::IntoConnectionInfo::into_connection_info("redis://127.0.0.1/").unwrap();
        let timeouts = Timeouts {
            connect: Duration::ZERO,
            read: Duration::ZERO,
            write: Duration::ZERO,
        };
        let (clock, counts) = (Clock::real(), Arc::new(Counts::default()));
        let source = Source::at(info).unwrap();
        let one = Connections::new(clock.clone(), counts.clone(), 0, source, timeouts, 1);
        Arc::new(Servers::new(clock, counts, Topology::One(Arc::new(one))))
    }

    #[test]
    fn replies_count_in_the_order_of_the_server_s_time() {
        let grant = |now| Grant {
            permits: 1,
            fence: 7,
            expires_at: None,
            now,
        };
        let servers = nowhere();
        let sent = servers.clock.moment();
        let deadline = |seconds| Deadline::told(sent, Some(Duration::from_secs(seconds)));
        let terms = Terms {
            lease_ms: 30_000,
            renewed: false,
            on_lost: None,
            own_id: false,
        };
        let keys = Keys::mutex("luagate", "order").unwrap();
        let holding = Holding::new(&servers, &keys, "id", &grant(100), deadline(30), &terms);
        // Carried out at 200 for 20 s; the reply of 150, for an hour, comes after it.
        assert!(holding.extend(&grant(200), deadline(20)));
        assert!(holding.extend(&grant(150), deadline(3_600)));
        let left = holding.remaining().unwrap();
        assert!(left <= Duration::from_secs(20), "{left:?}");
        assert!(holding.extend(&grant(300), deadline(3_600)));
        assert!(holding.remaining().unwrap() > Duration::from_secs(3_000));
    }
}
