//! Processes of clients end, start, pause, lose their subscription, and have their clocks changed.

use super::of;
use crate::action::Action;
use crate::client::Client;
use crate::ledger::Check;
use crate::world::{World, set_up};

impl World {
    pub(super) fn let_process(&mut self, action: &Action) -> Check {
        let (Action::Die { client }
        | Action::Born { client }
        | Action::Drop { client, .. }
        | Action::Subscribe { client }
        | Action::Suspend { client }
        | Action::Resume { client }
        | Action::StepWall { client, .. }) = action
        else {
            return Ok(());
        };
        let name = of(*client, self.hosts.len());
        self.change(name, action);
        self.set_listeners();
        self.look_after(name)
    }

    fn change(&mut self, name: usize, action: &Action) {
        let host = &mut self.hosts[name];
        match action {
            Action::Die { .. } => {
                host.client.die();
                host.promised.clear();
                host.ids.clear();
                host.groups.clear();
                self.redirected.retain(|(client, ..), _| *client != name); // its requests are numbered from 1 again
                self.tell(|| format!("c{name} dies"));
            }
            Action::Born { .. } if !host.client.is_alive => {
                let flights = std::mem::take(&mut host.client.flights);
                host.client = Client::new(name, host.client.last);
                host.client.flights = flights;
                set_up(&mut host.client, self.setup, &self.nodes);
            }
            Action::Drop { by_server, by_client, .. } => {
                host.client.hears = false;
                host.client.listens &= !by_server;
                host.client.is_up &= !by_client;
                self.tell(|| format!("the subscription of c{name} drops"));
            }
            Action::Subscribe { .. }
                if host.client.is_alive
                    && !(host.client.hears && host.client.listens && host.client.is_up) =>
            {
                self.with(name, |client, now| client.subscribe(now));
                self.tell(|| format!("c{name} subscribes again"));
            }
            // Each client has at most one wrong clock: every second client a monotonic clock that stops, the
            // others a wrong wall clock.
            Action::Suspend { .. } => host.is_suspended = name.is_multiple_of(2),
            Action::Resume { .. } => host.is_suspended = false,
            Action::StepWall { ms, .. } => {
                let ms = if name.is_multiple_of(2) { ms.abs() } else { *ms };
                host.ahead += ms * 1_000;
                self.tell(|| format!("the wall clock of c{name} steps by {ms} ms"));
            }
            _ => {}
        }
    }
}
