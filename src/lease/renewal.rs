//! Renewing permits: one thread a server for all that it granted, in batches, each at a third of its lease. A permit that could
//! not be renewed is lost by this machine's clock before its lease ends on the server. A further thread tells of losses, since
//! one that waits for a reply would tell late.

use crate::clock::{Bell, Busy, Clock};
use crate::error::Lost;
use crate::lease::holding::{Holding, OnLost, Task};
use crate::protocol::lease::Deadline;
use crate::protocol::replicas::MinReplicas;
use crate::scripts::semaphore;
use crate::sync::lock;
use crate::trace;
use crate::transport::connections::Turn;
use crate::transport::servers::Servers;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How many permits one packet renews at most.
const BATCH: usize = 100;

/// How long the reply to a packet is waited for at least.
const LEAST: Duration = Duration::from_millis(50);

/// What is due this soon goes along with what is due now.
const TOGETHER: Duration = Duration::from_millis(5);

pub(crate) struct Renewal {
    servers: Arc<Servers>,
    replicas: Option<MinReplicas>,
    /// By server, since one that stands still must not keep what others granted from being renewed.
    lanes: Mutex<BTreeMap<usize, Arc<Lane>>>,
    /// All whose loss is to be told.
    losses: Arc<Lane>,
    teller: Arc<Mutex<Teller>>,
}

/// The permits that one server granted, and the thread that renews them; or the one that tells of losses.
struct Lane {
    task: Task,
    servers: Arc<Servers>,
    replicas: Option<MinReplicas>,
    plan: Mutex<Plan>,
    changed: Bell,
    teller: Arc<Mutex<Teller>>,
}

struct Plan {
    task: Task,
    /// By when it is due, and a number that tells those of one instant apart.
    due: BTreeMap<(Instant, u64), Arc<Holding>>,
    number: u64,
    /// Until when the thread sleeps, or slept last; `None`: until it is called. Where permits come and go it is called once
    /// for many, since it may find less to do than it had planned for.
    sleeps_until: Option<Instant>,
    running: bool,
    closed: bool,
}

impl Plan {
    fn of(task: Task) -> Plan {
        Plan {
            task,
            due: BTreeMap::new(),
            number: 0,
            sleeps_until: None,
            running: false,
            closed: false,
        }
    }

    fn insert(&mut self, at: Instant, holding: Arc<Holding>) {
        self.number += 1;
        let key = (at, self.number);
        if let Some(earlier) = holding.plan(self.task, Some(key)) {
            self.due.remove(&earlier);
        }
        self.due.insert(key, holding);
    }
}

impl Lane {
    fn new(
        task: Task,
        servers: &Arc<Servers>,
        replicas: Option<MinReplicas>,
        teller: &Arc<Mutex<Teller>>,
    ) -> Arc<Lane> {
        Arc::new(Lane {
            task,
            changed: Bell::new(&servers.clock),
            servers: servers.clone(),
            replicas,
            plan: Mutex::new(Plan::of(task)),
            teller: teller.clone(),
        })
    }

    /// Takes a permit into the plan; starts the thread if none runs.
    fn watch(self: &Arc<Lane>, holding: &Arc<Holding>, now: Instant) {
        let Some(at) = next_look(self.task, holding, now) else {
            return;
        };
        let mut plan = lock(&self.plan);
        plan.insert(at, holding.clone());
        if !plan.running {
            let working = self.clone();
            let name = match self.task {
                Task::Renew => "luagate-renewal",
                Task::TellLoss => "luagate-losses",
            };
            let thread = std::thread::Builder::new().name(name.to_owned());
            // Where no thread can be started the permit is lost at its deadline, by the clock; the next one tries again.
            plan.running = thread.spawn(move || work(&working)).is_ok();
        }
        if plan.sleeps_until.is_none_or(|until| at < until) {
            self.changed.ring(plan);
        }
    }

    fn forget(&self, holding: &Holding) {
        let mut plan = lock(&self.plan);
        if let Some(key) = holding.forget(self.task) {
            plan.due.remove(&key);
        }
    }

    fn close(&self) {
        let mut plan = lock(&self.plan);
        plan.closed = true;
        self.changed.ring(plan);
    }
}

impl Renewal {
    pub(crate) fn new(servers: Arc<Servers>, replicas: Option<MinReplicas>) -> Renewal {
        let teller = Arc::new(Mutex::new(Teller {
            clock: servers.clock.clone(),
            sender: None,
        }));
        Renewal {
            losses: Lane::new(Task::TellLoss, &servers, replicas, &teller),
            servers,
            replicas,
            lanes: Mutex::default(),
            teller,
        }
    }

    fn lane(&self, number: usize) -> Arc<Lane> {
        let mut lanes = lock(&self.lanes);
        let lane = lanes
            .entry(number)
            .or_insert_with(|| Lane::new(Task::Renew, &self.servers, self.replicas, &self.teller));
        lane.clone()
    }

    /// Looks after a permit that is to be renewed, or whose loss is to be told; again when its end is another.
    pub(crate) fn watch(&self, holding: &Arc<Holding>) {
        let now = self.servers.clock.now();
        if holding.terms.renewed {
            self.lane(holding.lane).watch(holding, now);
        }
        if holding.terms.on_lost.is_some() {
            self.losses.watch(holding, now);
        }
    }

    /// Renews a permit no more. A renewal that is under way still counts, and is the last.
    pub(crate) fn stop(&self, holding: &Holding) {
        holding.stop_renewal();
        let lane = self.lane(holding.lane);
        let mut plan = lock(&lane.plan);
        if let Some(key) = holding.plan(Task::Renew, None) {
            plan.due.remove(&key);
        }
    }

    /// Stops looking after a permit. A renewal that is under way changes nothing any more: a released id is not
    /// brought back by the script.
    pub(crate) fn forget(&self, holding: &Holding) {
        self.lane(holding.lane).forget(holding);
        if holding.terms.on_lost.is_some() {
            self.losses.forget(holding);
        }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        if self.servers.is_own_process() {
            for lane in lock(&self.lanes).values() {
                lane.close();
            }
            self.losses.close();
        }
    }
}

/// When to look at it: for its renewal after a third of what is left of its lease, for its loss at the end.
fn next_look(task: Task, holding: &Holding, now: Instant) -> Option<Instant> {
    let end = holding.deadline().instant();
    match task {
        Task::TellLoss => end,
        Task::Renew if !holding.is_renewed() => None,
        Task::Renew => {
            // What is left may be less than its lease after `refresh_for`, or when the message of its grant was long on its
            // way; and it may be more.
            let lease = Duration::from_millis(holding.terms.lease_ms);
            let left = end.map_or(lease, |end| end.saturating_duration_since(now));
            Some(now + lease.min(left) / 3)
        }
    }
}

fn work(lane: &Lane) {
    while let Some(due) = wait_for_due(lane) {
        let (lost, alive): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|holding| holding.is_lost());
        for holding in lost {
            lose(lane, &holding);
        }
        match lane.task {
            Task::TellLoss => {
                for holding in alive {
                    again(lane, holding, None); // its end is another now
                }
            }
            Task::Renew => {
                let renewed = alive.into_iter().filter(|holding| holding.is_renewed());
                let renewed: Vec<_> = renewed.collect();
                if !renewed.is_empty() {
                    renew_batch(lane, &renewed);
                }
            }
        }
    }
}

/// Sleeps until something is due; takes it out of the plan. Nothing when the gate is gone.
fn wait_for_due(lane: &Lane) -> Option<Vec<Arc<Holding>>> {
    let mut plan = lock(&lane.plan);
    loop {
        if plan.closed {
            return None;
        }
        let first = plan.due.first_key_value().map(|(key, _)| key.0);
        if first.is_some_and(|at| at <= lane.servers.clock.now()) {
            break;
        }
        plan.sleeps_until = first;
        plan = lane.changed.sleep(plan, first);
    }
    let soon = lane.servers.clock.now() + TOGETHER;
    let mut due = Vec::new();
    while due.len() < BATCH {
        match plan.due.first_entry() {
            Some(entry) if entry.key().0 <= soon => {
                let holding = entry.remove();
                holding.plan(lane.task, None);
                due.push(holding);
            }
            _ => break,
        }
    }
    Some(due)
}

fn renew_batch(lane: &Lane, batch: &[Arc<Holding>]) {
    // No longer than until the first of them is lost; but one that is almost lost must not keep the others from being renewed.
    let first = batch
        .iter()
        .filter_map(|holding| holding.deadline().instant());
    let sent = lane.servers.clock.moment();
    let until = first.min().map(|end| end.max(sent.instant() + LEAST));
    let calls: Vec<_> = batch
        .iter()
        .map(|holding| {
            let lease_ms = holding.terms.lease_ms;
            (
                &holding.keys,
                holding.id.as_str(),
                lease_ms,
                holding.own_fence(),
            )
        })
        .collect();
    let packets = lane.servers.call_each(
        Turn::First,
        &calls,
        |(keys, ..)| &keys.meta,
        until,
        &mut |con, calls| semaphore::refresh_all(con, calls, lane.replicas.as_ref()),
    );
    for packet in packets {
        let group = packet.places.iter().filter_map(|place| batch.get(*place));
        let answered = match packet.outcome {
            Ok(answered) => answered,
            Err(unanswered) => {
                if let Some(first) = group.clone().next() {
                    trace::unrenewed(&first.keys, packet.places.len(), &unanswered.error);
                }
                for holding in group {
                    holding.may_end(sent, holding.terms.lease_ms);
                    again(lane, holding.clone(), Some(retry_pause(holding)));
                }
                continue;
            }
        };
        for (holding, outcome) in group.zip(answered.reply) {
            match outcome {
                Ok(Some(grant))
                    if holding.extend(&grant, Deadline::told(answered.sent, grant.left())) =>
                {
                    trace::renewed(&holding.keys, holding.fence);
                    lane.servers.counts.renewed.add_one();
                    again(lane, holding.clone(), None);
                }
                Ok(_) => lose(lane, holding),
                // One that fails alone, its key overwritten say, is tried again until its deadline like any other.
                Err(error) => {
                    trace::unrenewed(&holding.keys, 1, &error);
                    again(lane, holding.clone(), Some(retry_pause(holding)));
                }
            }
        }
    }
}

/// After a renewal that failed: soon enough for several more before the deadline.
fn retry_pause(holding: &Holding) -> Duration {
    Duration::from_millis((holding.terms.lease_ms / 10).clamp(5, 1_000))
}

/// Back into the plan, unless it was released in the meantime.
fn again(lane: &Lane, holding: Arc<Holding>, pause: Option<Duration>) {
    let now = lane.servers.clock.now();
    let next = match pause {
        Some(pause) => {
            let at = now + pause;
            Some(holding.deadline().instant().map_or(at, |end| at.min(end)))
        }
        None => next_look(lane.task, &holding, now),
    };
    let mut plan = lock(&lane.plan);
    if let (Some(at), true) = (next, holding.is_watched()) {
        plan.insert(at, holding);
    }
}

fn lose(lane: &Lane, holding: &Holding) {
    if holding.is_watched()
        && holding.lose()
        && let Some(on_lost) = &holding.terms.on_lost
    {
        lock(&lane.teller).tell(on_lost.clone(), holding.lost());
    }
}

/// Runs the users' callbacks on a thread of their own, started by the first.
struct Teller {
    clock: Clock,
    sender: Option<Sender<(OnLost, Lost, Busy)>>,
}

impl Teller {
    fn tell(&mut self, on_lost: OnLost, lost: Lost) {
        if self.sender.is_none() {
            self.sender = start_telling();
        }
        // Where no thread can be started it is not told; the next one tries again.
        if let Some(sender) = &self.sender {
            let _ = sender.send((on_lost, lost, self.clock.busy()));
        }
    }
}

fn start_telling() -> Option<Sender<(OnLost, Lost, Busy)>> {
    let (sender, receiver) = channel::<(OnLost, Lost, Busy)>();
    let thread = std::thread::Builder::new().name("luagate-on-lost".to_owned());
    let started = thread.spawn(move || {
        for (on_lost, lost, _busy) in receiver {
            // A callback that panics is the user's concern; the next one runs all the same.
            let _ = catch_unwind(AssertUnwindSafe(|| on_lost(&lost)));
        }
    });
    started.ok().map(|_| sender)
}
