//! The unconfirmed releases of a client, and the waits that it gave up.

use super::view::View;
use crate::client::flights::Connection;
use crate::client::pending::Released;
use crate::protocol::releases::{PendingRelease, ReleaseCall, ReleaseTarget};

impl View<'_> {
    fn pending(&mut self, pending: &PendingRelease<Connection>) {
        self.add_id(&pending.id);
        match pending.target {
            ReleaseTarget::Whatever => self.add([1]),
            ReleaseTarget::Fence(fence) => {
                self.add([2]);
                self.add_own(fence);
            }
            ReleaseTarget::LookUp => self.add([3]),
            ReleaseTarget::Held => self.add([4]), // no simulated client leaves a future without a poll
        }
        self.add_connection(pending.connection);
        self.add_instant(pending.until);
        self.add([pending.given_up.is_some().into()]);
    }

    pub(super) fn released(&mut self, released: &Released) {
        self.pending(&released.pending);
        self.add([u64::from(released.steps.lookups), released.given_up.is_some().into()]);
        match released.steps.next {
            ReleaseCall::LookUp => self.add([1]),
            ReleaseCall::Release(fence) => {
                self.add([2]);
                self.add_own(fence.unwrap_or(0));
            }
            ReleaseCall::Nothing => self.add([3]),
        }
    }

    pub(super) fn releases(&mut self) {
        let client = &self.party.client;
        self.add([
            client.releases.pending.len() as u64,
            client.releasing.values().flatten().count() as u64,
            client.inbox.given_up.len() as u64,
        ]);
        self.add_instant(client.releases_at);
        self.add_past(client.releases_at);
        for (end, pause) in client.releases.pauses.values() {
            self.add_instant(Some(*end));
            self.add([pause.as_millis() as u64]);
        }
        client.releases.pending.iter().for_each(|p| self.pending(p));
        client.releasing.values().flatten().for_each(|r| self.released(r));
        for given_up in client.inbox.given_up.values() {
            self.add_id(&given_up.id);
            self.add_instant(Some(given_up.until));
        }
    }
}
