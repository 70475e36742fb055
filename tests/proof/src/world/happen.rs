//! The effect of each action on a world.

mod callers;
mod flights;
mod forgeries;
mod nodes;
mod outsiders;
mod processes;
mod servers;
mod several;

use super::World;
use crate::action::Action;
use crate::client::{Client, Thread};
use crate::ledger::Check;
use crate::protocol::kind::FailureKind;
use crate::protocol::lease::Moment;
pub(super) use several::Group;

/// How many must count down, and how long the latch is kept.
const COUNT: u32 = 2;
const LIFE_MS: u64 = 20_000;

/// The index of one of several things.
fn of(number: usize, length: usize) -> usize {
    number.checked_rem(length).unwrap_or(0)
}

impl World {
    /// Performs an action.
    ///
    /// # Errors
    /// If the action breaks a promise.
    pub fn apply(&mut self, action: &Action) -> Check {
        let clients = self.hosts.len();
        match action {
            Action::Pass(ms) => self.pass(*ms),
            Action::Act { client, thread } => self.let_one_act(of(*client, clients), *thread),
            Action::Want { .. } | Action::WantAll { .. } | Action::Watch { .. } | Action::Cancel { .. } => {
                self.let_caller(action)
            }
            Action::Look { client, permit }
            | Action::Refresh { client, permit, .. }
            | Action::Keep { client, permit, .. }
            | Action::DropPermit { client, permit } => self.let_holder(of(*client, clients), *permit, action),
            Action::Collect { client, .. } => self.collect(of(*client, clients), action),
            Action::Arrive { flight }
            | Action::Return { flight }
            | Action::Prompt { flight }
            | Action::Break { flight, .. }
            | Action::GiveUp { flight, .. }
            | Action::Refuse { flight, .. }
            | Action::Lose { flight } => self.let_fly(*flight, action),
            Action::Read { mail } | Action::LoseMail { mail } | Action::Duplicate { mail } => {
                self.let_mail(*mail, action)
            }
            Action::Forge { client, caller, forgery } => self.forge(of(*client, clients), *caller, *forgery),
            Action::Die { .. }
            | Action::Born { .. }
            | Action::Drop { .. }
            | Action::Subscribe { .. }
            | Action::Suspend { .. }
            | Action::Resume { .. }
            | Action::StepWall { .. } => self.let_process(action),
            Action::ManyJoin { .. }
            | Action::Invent { .. }
            | Action::Confirm { .. }
            | Action::Lookup { .. }
            | Action::Stale { .. }
            | Action::Revoke { .. }
            | Action::Inspect { .. }
            | Action::Resize { .. }
            | Action::TryAll { .. }
            | Action::FreeAll { .. }
            | Action::CountDown { .. }
            | Action::Count
            | Action::DeleteLatch => self.let_outsider(action),
            Action::BeginMove { .. }
            | Action::MoveKey { .. }
            | Action::EndMove { .. }
            | Action::NodeDies { .. }
            | Action::TakeOver { .. } => self.let_nodes(action),
            Action::Full(_)
            | Action::Flush
            | Action::Step(_)
            | Action::Backup
            | Action::Restart { .. }
            | Action::Evict { .. }
            | Action::Restore { .. } => self.let_server(action),
            Action::Calm => self.calm(),
            Action::End => self.end(),
        }
    }

    /// All faults and delays end.
    fn calm(&mut self) -> Check {
        if self.calm_since.is_none() {
            self.begin_calm();
        }
        let is_first = self.count.scripts == 0;
        self.hosts.iter_mut().for_each(|host| host.client.is_calm |= is_first);
        Ok(())
    }

    fn begin_calm(&mut self) {
        self.calm_since = Some(self.mono);
        for host in &mut self.hosts {
            host.calm_since = Some(host.now(self.mono).instant());
        }
    }

    fn pass(&mut self, ms: u64) -> Check {
        let is_prompt = self.is_prompt(self.mono + ms * 1_000);
        self.advance(ms * 1_000)?;
        if !is_prompt {
            self.waits.fill(None);
            if self.calm_since.is_some() {
                self.begin_calm();
            }
            self.hosts.iter_mut().for_each(|host| host.client.is_calm = false);
        }
        self.tell(|| format!("{ms} ms pass"));
        self.check_beliefs()?;
        self.check_liveness()
    }

    /// An action of a client, by its clocks.
    fn with<T>(&mut self, name: usize, work: impl FnOnce(&mut Client, Moment) -> T) -> T {
        let host = &mut self.hosts[name];
        let now = host.now(self.mono);
        work(&mut host.client, now)
    }

    /// A packet cannot be sent. If nobody awaits it, it is lost.
    pub(super) fn refuse(&mut self, name: usize, number: u64, kind: FailureKind) -> Check {
        self.with(name, |client, now| {
            client.flights.retain(|flight| flight.number != number || flight.thread.is_some());
            client.refuse(number, kind, now);
        });
        self.look_after(name)
    }

    /// Lets one of a client's threads act, if it has something to do.
    fn let_one_act(&mut self, name: usize, thread: usize) -> Check {
        let due = self.due().filter(|(other, _)| *other == name);
        let due: Vec<Thread> = due.map(|(_, thread)| thread).collect();
        match due.get(of(thread, due.len())) {
            Some(thread) => self.let_act(name, *thread),
            None => Ok(()),
        }
    }

    pub(super) fn let_act(&mut self, name: usize, thread: Thread) -> Check {
        self.tell(|| format!("c{name} runs its thread {thread:?}"));
        self.with(name, |client, now| client.act(thread, now));
        self.look_after(name)
    }
}
