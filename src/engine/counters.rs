//! The event counters of a gate, for monitoring.

use crate::error::AcquireError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Event counters since the gate was opened, shared by its clones. [`Gate::counters`](crate::Gate::counters)
/// returns them.
///
/// No counter ever decreases, so a metrics library can take each as a counter. After a restart of the process
/// all begin at zero. The counters are read one after the other: a grant that is made at the same time may
/// show in one and not yet in the next. The [guide](crate::guide::observability) has an example and lists
/// which values need an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Permits that were handed out, at once or after a wait. Each counts once, regardless of its weight. If
    /// several semaphores are acquired together, each grant counts, even if it is given back because another
    /// semaphore is not free in time. An [adopted](crate::Semaphore::adopt) permit was granted before and
    /// does not count.
    pub granted: u64,
    /// Callers that were refused because of other callers: a `try_` call that was
    /// [`Denied`](crate::errors::Denied), a wait in line that timed out, and a full line. Failures of the
    /// server, cancelled waits and waits for a latch do not count.
    pub denied: u64,
    /// The part of `denied` that did not join the line because it was full; see
    /// [`max_waiting`](crate::Semaphore::max_waiting).
    pub line_full: u64,
    /// The part of `granted` that waited in line first.
    pub waited: u64,
    /// Permits that turned out to be lost while this process held them. Each counts once, when the loss is
    /// noticed: by
    /// [`remaining`](crate::Permit::remaining) or [`is_lost`](crate::Permit::is_lost) after the end of the
    /// lease, by a refused refresh or renewal, or by a release that found nothing.
    ///
    /// Two cases do not count: a lost permit that is dropped before the loss is noticed, while the server
    /// cannot be reached; and a permit whose release had to be repeated, since the first release may have
    /// been carried out.
    pub lost: u64,
    /// Renewals in the background that the server confirmed: one for each permit and each time. Calls of
    /// [`refresh`](crate::Permit::refresh) do not count.
    pub renewed: u64,
    /// Connections that replaced one that broke or did not answer in time, and subscriptions that were
    /// re-established.
    pub reconnects: u64,
}

/// The counters, as they are updated. They are read in this order: a part before its whole, so that no part
/// is greater.
macro_rules! counts {
    ($($name:ident)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $(pub(crate) $name: Count,)*
        }

        impl Counts {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.read(),)* }
            }
        }
    };
}

counts! { waited line_full granted denied lost renewed reconnects }

impl Counts {
    /// Counts a wait that timed out, or that did not join because the line was full. Other errors do not
    /// count.
    pub(crate) fn refuse(&self, error: &AcquireError) {
        match error {
            AcquireError::TimedOut(_) => self.denied.add_one(),
            AcquireError::LineFull(_) => {
                self.denied.add_one();
                self.line_full.add_one();
            }
            _ => {}
        }
    }

    /// Counts a permit that is handed out. `waited`: after a wait in line.
    pub(crate) fn grant(&self, waited: bool) {
        self.granted.add_one();
        if waited {
            self.waited.add_one();
        }
    }
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
