//! The public functions of a permit that do not wait for the server.

use super::Permit;
use crate::protocol::keys::Keys;
use std::fmt;
use std::time::Duration;

impl Permit {
    /// The fencing token: a number that is higher than that of every earlier grant of this semaphore. Pass it
    /// to the protected resource, and let the resource refuse lower numbers. If several holders are allowed at
    /// the same time, the fence identifies a grant but does not order the holders.
    pub fn fence(&self) -> u64 {
        self.state.identity.fence
    }

    /// The id of the holder: `<uuid>`, `<label>/<uuid>`, or the id that the application chose.
    pub fn id(&self) -> &str {
        &self.state.identity.id
    }

    /// The keys of the semaphore, for your own scripts. See [`scripts::HOLDS`](crate::scripts::HOLDS).
    pub fn keys(&self) -> &Keys {
        &self.state.identity.keys
    }

    /// The number of permits, as the caller asked for. 0 in a forked child.
    pub fn permits(&self) -> u32 {
        self.state.permits()
    }

    /// The limit in force at the time of the grant. It may differ from the declared limit. After
    /// [`adopt`](crate::Semaphore::adopt) it is the declared limit (0: none), because the server does not
    /// report the limit to that call.
    pub fn limit(&self) -> u32 {
        self.state.limit
    }

    /// The place in line at which the caller waited. `None` if it was granted without waiting.
    pub fn ticket(&self) -> Option<u64> {
        self.state.ticket
    }

    /// The time for which the permit is still held, by the clocks of this machine, early rather than late. Zero
    /// if the permit is lost, and in a forked child. `None` if the permit is permanent. Does not block and
    /// sends nothing to the server.
    pub fn remaining(&self) -> Option<Duration> {
        self.state.remaining()
    }

    /// Whether the permit is lost, by the clocks of this machine and the replies so far. Once true, it stays
    /// true. Does not block and sends nothing to the server. Therefore a revoked permit is reported only after
    /// the next refresh.
    pub fn is_lost(&self) -> bool {
        self.state.is_lost()
    }

    /// Stops the background renewal. The permit ends with its current lease, unless the caller calls
    /// [`refresh`](Self::refresh). [`on_lost`](crate::Semaphore::on_lost) still reports the end. A renewal that
    /// is already on its way still counts: read [`remaining`](Self::remaining) again after a round trip. A
    /// permit that is permanent or not renewed does not change. Does not block and sends nothing to the server.
    pub fn stop_renewal(&self) {
        self.state.stop_renewal();
    }

    /// Drops the permit without releasing it, and returns the id. Within [`remaining`](Self::remaining), another
    /// process can take over with [`Semaphore::adopt`](crate::Semaphore::adopt). The renewal stops.
    pub fn into_id(self) -> String {
        self.state.hand_on();
        self.state.identity.id.clone()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.state, f)
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.state, f)
    }
}
