//! In place of the library's `lease::releases`: the releases of the one id that waits. Each is one call,
//! which is sent behind all earlier calls.

use crate::remote::Remote;
use luagate_core::release::{self, ReleaseCall};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

pub(crate) type PendingRelease = release::PendingRelease<()>;

pub(crate) struct Releases {
    remote: Arc<Remote>,
    is_closed: AtomicBool,
}

impl Releases {
    pub(crate) fn new(remote: &Arc<Remote>) -> Arc<Releases> {
        Arc::new(Releases { remote: remote.clone(), is_closed: AtomicBool::new(false) })
    }

    pub(crate) fn of_open_gate(releases: &Weak<Releases>) -> Option<Arc<Releases>> {
        releases.upgrade().filter(|releases| !releases.is_closed.load(Ordering::Relaxed))
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn post(&self, pending: PendingRelease) {
        let ReleaseCall::Release(fence) = pending.steps().next else {
            unreachable!("it takes one call");
        };
        drop(self.remote.send(move |remote| remote.release(&pending.id, fence)));
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        self.remote.close();
    }
}
