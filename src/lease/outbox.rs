//! The outbox, shared by all threads of a gate.

use crate::engine::connection::Connection;
use crate::engine::mode::Mode;
use crate::engine::slot::Slot;
use crate::foreign::Foreign;
use crate::lua::SCRIPTS;
use luagate_core::outbox::{Mark, Outbox};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

type Unconfirmed = Outbox<Arc<Connection>>;

/// All releases that are not confirmed.
pub(crate) struct SharedOutbox {
    outbox: Slot<Unconfirmed>,
    /// Copies of values in the outbox. So a call needs no lock if no release concerns it.
    is_waited_for: AtomicBool,
    last: AtomicU64,
    delays: AtomicU64,
}

impl SharedOutbox {
    pub(crate) fn new(foreign: &Foreign) -> SharedOutbox {
        let (last, delays) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_waited_for = AtomicBool::new(false);
        SharedOutbox { outbox: Slot::of_machine(foreign, Outbox::new(&SCRIPTS)), is_waited_for, last, delays }
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Unconfirmed) -> T) -> T {
        self.outbox.change(|outbox| {
            let result = change(outbox);
            let Mark { last, delays } = outbox.mark();
            self.last.store(last, Ordering::Release);
            self.delays.store(delays, Ordering::Release);
            self.is_waited_for.store(outbox.is_waited_for(), Ordering::Release);
            result
        })
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Unconfirmed) -> T) -> T {
        self.outbox.look(look)
    }

    /// Waits until `look` finds something, or until `until` on the clock of the machine.
    pub(crate) async fn until<T>(
        &self,
        until: Instant,
        mode: Mode,
        look: impl FnMut(&mut Unconfirmed) -> Option<T>,
    ) -> Option<T> {
        self.outbox.until(Some(until), mode, look).await
    }

    /// The moment of a call that is sent now.
    pub(crate) fn mark(&self) -> Mark {
        Mark { last: self.last.load(Ordering::Acquire), delays: self.delays.load(Ordering::Acquire) }
    }

    /// Whether some call may have to wait for a release.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::Acquire)
    }
}
