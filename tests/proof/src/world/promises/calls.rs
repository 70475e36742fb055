//! Promises about the way of each call.

use crate::call::{Call, Sent};
use crate::client::flights::Flight;
use crate::ledger::{Check, broken};
use crate::world::World;
use crate::world::nodes::Redirect;

/// The redirects of a call since something has changed.
#[derive(Default)]
pub(in crate::world) struct Redirected {
    /// The number of changes: of the slot, and of what the client knows.
    changes: u64,
    moved: bool,
    asked: bool,
    /// The number of the last packet. It may contain the same release twice: of a call that was given up, and
    /// of its wait.
    packet: u64,
}

impl World {
    /// Checks that a call follows its redirects: it is redirected again only after a change.
    ///
    /// A release behind two lost calls on two connections is sent on both, and is redirected on each of them.
    pub(in crate::world) fn check_redirect(
        &mut self,
        name: usize,
        flight: &Flight,
        sent: &Sent,
        redirect: Redirect,
    ) -> Check {
        let place = self.nodes.place(&sent.keys[0]).map_or(0, |place| self.nodes.places[place].changes);
        let changes = place + self.hosts[name].client.changes;
        let posted = flight.post.is_some().then_some(flight.connection.number);
        let call = (name, flight.request, posted, sent.to_string());
        let known = self.redirected.entry(call).or_default();
        if known.changes != changes {
            *known = Redirected { changes, ..Redirected::default() };
        }
        if std::mem::replace(&mut known.packet, flight.number) == flight.number {
            return Ok(());
        }
        let is_needless = match redirect {
            Redirect::Moved(_) => std::mem::replace(&mut known.moved, true) || known.asked,
            Redirect::Ask(_) => std::mem::replace(&mut known.asked, true),
            Redirect::TryAgain => {
                known.asked = false;
                false
            }
        };
        if is_needless {
            broken(
                "redirects",
                format!("{sent} is redirected again, though nothing has changed: {redirect:?}"),
            )
        } else {
            Ok(())
        }
    }

    /// Before a client sends a call in line to a node, it subscribes there.
    pub(in crate::world) fn note_subscription(&mut self, name: usize, sent: &Sent, is_awaited: bool) {
        let client = &mut self.hosts[name].client;
        if let (Call::Acquire(ask), true, true) = (sent.call(), is_awaited, self.nodes.is_cluster())
            && !ask.inbox.is_empty()
            && client.hears
            && !client.listens
        {
            client.listens = true;
            self.set_listeners();
        }
    }
}
