//! How long a permit lives, told by this machine's clocks alone, and early rather than late.

use crate::error::Invalid;
use std::time::{Duration, Instant, SystemTime};

/// A point in time on the server's clock: milliseconds since 1970.
pub type ServerTime = u64;

/// The lease of a permit when none was chosen; it is renewed while the permit lives.
pub(crate) const DEFAULT: Duration = Duration::from_secs(30);

/// The shortest lease that can be renewed: a renewal is sent after a third of it, and needs time for its answer and a retry.
pub(crate) const SHORTEST_RENEWED: Duration = Duration::from_millis(30);

/// The longest lease the scripts take: 100 years of 365.25 days.
pub(crate) const LONGEST_MS: u64 = 36_525 * 86_400_000;

/// An instant on both of this machine's clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    pub(crate) fn new(monotonic: Instant, wall: SystemTime) -> Moment {
        Moment { monotonic, wall }
    }

    pub(crate) fn instant(&self) -> Instant {
        self.monotonic
    }
}

/// When a lease ends, at the latest instant at which this process may still act on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Moment>);

impl Deadline {
    /// The end of a lease that the server told in reply to a call sent at `sent`: it counts from before the call left,
    /// less 1 ms, which the server's rounding may have added. `None` is a permanent lease.
    pub(crate) fn told(sent: Moment, left: Option<Duration>) -> Deadline {
        let end = |left: Duration| {
            let left = left.saturating_sub(Duration::from_millis(1));
            Some(Moment { monotonic: sent.monotonic.checked_add(left)?, wall: sent.wall.checked_add(left)? })
        };
        Deadline(left.and_then(end)) // an end that no clock can hold is never reached
    }

    /// The earlier of two.
    pub(crate) fn earlier(self, other: Deadline) -> Deadline {
        match (self.0, other.0) {
            (Some(a), Some(b)) => {
                Deadline(Some(Moment { monotonic: a.monotonic.min(b.monotonic), wall: a.wall.min(b.wall) }))
            }
            (end, None) | (None, end) => Deadline(end),
        }
    }

    /// How long is left: zero when it is over, `None` when it never ends. The clock that shows less decides, since the
    /// monotonic one stands still while a machine is suspended.
    pub(crate) fn remaining(&self, now: Moment) -> Option<Duration> {
        let end = self.0?;
        let monotonic = end.monotonic.saturating_duration_since(now.monotonic);
        let wall = end.wall.duration_since(now.wall).unwrap_or_default();
        Some(monotonic.min(wall))
    }

    pub(crate) fn is_past(&self, now: Moment) -> bool {
        self.remaining(now).is_some_and(|left| left.is_zero())
    }

    /// When it ends on the monotonic clock.
    pub(crate) fn instant(&self) -> Option<Instant> {
        self.0.map(|end| end.monotonic)
    }
}

/// What was agreed on a permit's lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseOptions {
    /// The lease that a refresh asks for; 0 is permanent.
    pub(crate) lease_ms: u64,
    pub(crate) renewed: bool,
    /// The id is the user's own, so another caller may hold with it by now.
    pub(crate) own_id: bool,
    /// The minimum hold; 0: none.
    pub(crate) at_least_ms: u64,
}

impl LeaseOptions {
    /// The lease that the first call asks for. A permanent one begins as one of 30 s, so that a permit whose reply was lost comes
    /// back by itself. None ends before the minimum hold.
    pub(crate) fn first_lease_ms(&self) -> u64 {
        let lease_ms = match self.lease_ms {
            0 => u64::try_from(DEFAULT.as_millis()).unwrap_or(u64::MAX),
            lease_ms => lease_ms,
        };
        lease_ms.max(self.at_least_ms)
    }
}

/// A lease as the scripts take it: whole milliseconds.
pub(crate) fn to_ms(lease: Duration) -> Result<u64, Invalid> {
    checked_ms(lease).ok_or_else(|| {
        let why = format!(
            "{lease:?} is out of range. Accepted: 1 ms to 100 years. For a lease without an end, use `permanent`"
        );
        Invalid::new("lease", why)
    })
}

/// A minimum hold as the scripts take it.
pub(crate) fn at_least_ms(least: Duration) -> Result<u64, Invalid> {
    checked_ms(least)
        .ok_or_else(|| Invalid::new("at_least", format!("{least:?} is out of range. Accepted: 1 ms to 100 years")))
}

fn checked_ms(duration: Duration) -> Option<u64> {
    u64::try_from(duration.as_millis()).ok().filter(|ms| (1..=LONGEST_MS).contains(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Moment {
        Moment::new(Instant::now(), SystemTime::now())
    }

    #[test]
    fn a_lease_counts_from_before_the_call_and_less_a_millisecond() {
        let sent = now();
        let end = Deadline::told(sent, Some(Duration::from_millis(500)));
        assert_eq!(end.instant(), Some(sent.instant() + Duration::from_millis(499)));
        assert!(!end.is_past(sent));
        assert!(Deadline::told(sent, Some(Duration::ZERO)).is_past(sent));
        assert_eq!(Deadline(None).remaining(sent), None);
    }

    #[test]
    fn the_clock_that_shows_less_decides() {
        let now = now();
        // While the machine was suspended the monotonic clock stood still and the wall clock went on.
        let suspended = Moment { monotonic: now.monotonic, wall: now.wall - Duration::from_secs(60) };
        assert!(Deadline::told(suspended, Some(Duration::from_secs(30))).is_past(now));
        // The wall clock was set back an hour: the monotonic one still counts.
        let set_back =
            Moment { monotonic: now.monotonic - Duration::from_secs(31), wall: now.wall + Duration::from_secs(3600) };
        assert!(Deadline::told(set_back, Some(Duration::from_secs(30))).is_past(now));
    }

    #[test]
    fn the_earlier_of_two_ends_counts() {
        let sent = now();
        let short = Deadline::told(sent, Some(Duration::from_secs(1)));
        let long = Deadline::told(sent, Some(Duration::from_secs(9)));
        assert_eq!(short.earlier(long).instant(), short.instant());
        assert_eq!(Deadline(None).earlier(long).instant(), long.instant());
    }

    #[test]
    fn leases_in_whole_milliseconds() {
        assert_eq!(to_ms(Duration::from_micros(1_900)), Ok(1));
        assert!(to_ms(Duration::from_micros(999)).is_err());
        assert!(to_ms(Duration::from_secs(101 * 366 * 86_400)).is_err());
    }
}
