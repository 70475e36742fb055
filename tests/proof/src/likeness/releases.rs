//! The unconfirmed releases of a client, and the waits that it gave up.

use super::view::View;
use crate::client::flights::Connection;
use crate::protocol::outbox::{Entry, EntryState};
use crate::protocol::release::{ReleaseCall, ReleaseTarget};

impl View<'_> {
    pub(super) fn release(&mut self, Entry { release, steps, state }: &Entry<Connection>) {
        self.add_id(&release.id);
        match release.target {
            ReleaseTarget::Whatever => self.add([1]),
            ReleaseTarget::Fence(fence) => {
                self.add([2]);
                self.add_own(fence);
            }
            ReleaseTarget::Other(fence) => {
                self.add([3]);
                self.add_own(fence);
            }
        }
        self.add_connection(release.lost.first().copied());
        self.add_instant(release.until);
        self.add([u64::from(steps.lookups), release.lost.len() as u64, release.lost.is_silent().into()]);
        self.add([u64::from(release.given_up.is_some())]);
        match steps.next {
            ReleaseCall::LookUp => self.add([1]),
            ReleaseCall::Release(fence) => {
                self.add([2]);
                self.add_own(fence.unwrap_or(0));
            }
            ReleaseCall::Nothing => self.add([3]),
        }
        self.add([match state {
            EntryState::Posted(_) => 1,
            EntryState::Due => 2,
            EntryState::Sending => 3,
            EntryState::Confirmed => 4,
        }]);
    }

    pub(super) fn releases(&mut self) {
        let client = &self.party.client;
        self.add([client.outbox.entries.len() as u64, client.inbox.given_up.len() as u64]);
        self.add_instant(client.releases_at);
        self.add_past(client.releases_at);
        for (end, pause) in client.outbox.pauses.values() {
            self.add_instant(Some(*end));
            self.add([pause.as_millis() as u64]);
        }
        client.outbox.entries.values().for_each(|entry| self.release(entry));
        for wait in client.inbox.given_up.values() {
            self.add_id(&wait.id);
            self.add_instant(Some(wait.until));
        }
    }
}
