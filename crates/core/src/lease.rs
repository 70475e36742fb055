//! The remaining time of a lease, measured only by this machine's clocks. A lease ends here too early rather
//! than too late.

use crate::invalid::Invalid;
use std::time::{Duration, Instant};

/// A point in time on the server's clock: milliseconds since 1970.
pub type ServerTime = u64;

/// The default lease. It is renewed while the permit exists.
pub const DEFAULT: Duration = Duration::from_secs(30);

/// The shortest lease that can be renewed. A renewal is sent after a third of it; the rest is for its reply
/// and a retry.
pub const SHORTEST_RENEWED: Duration = Duration::from_millis(30);

/// The shortest lease: one of 1 ms ends here at once, since 1 ms is subtracted from each.
const SHORTEST_MS: u64 = 2;

/// The longest lease that the scripts accept: 100 years of 365.25 days.
pub const LONGEST_MS: u64 = 36_525 * 86_400_000;

/// An instant on both of this machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    monotonic: Instant,
    /// The time since a fixed point, on a clock that also counts the time while the machine is suspended.
    total: Duration,
}

impl Moment {
    pub fn new(monotonic: Instant, total: Duration) -> Moment {
        Moment { monotonic, total }
    }

    pub fn instant(&self) -> Instant {
        self.monotonic
    }

    /// The time since an earlier moment, also while the machine was suspended.
    pub fn since(&self, earlier: Moment) -> Duration {
        let monotonic = self.monotonic.saturating_duration_since(earlier.monotonic);
        monotonic.max(self.total.saturating_sub(earlier.total))
    }
}

/// When an answered call was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: Moment,
    /// An earlier attempt was not answered, so the server may have run the call twice: the time since the
    /// first attempt.
    pub repeated: Option<Duration>,
}

/// The end of a lease: the last time at which this process may still use the permit.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Moment>);

impl Deadline {
    /// The end of a lease that the server reported in reply to a call sent at `sent`. The lease counts from
    /// before the call was sent, less 1 ms, which the server's rounding may have added. `None`: a permanent
    /// lease.
    pub fn after(sent: Moment, left: Option<Duration>) -> Deadline {
        let end = |left: Duration| {
            let left = left.saturating_sub(Duration::from_millis(1));
            Some(Moment {
                monotonic: sent.monotonic.checked_add(left)?,
                total: sent.total.checked_add(left)?,
            })
        };
        Deadline(left.and_then(end)) // an end outside the clock's range is never reached
    }

    /// The earlier of two.
    pub fn earlier(self, other: Deadline) -> Deadline {
        match (self.0, other.0) {
            (Some(a), Some(b)) => Deadline(Some(Moment {
                monotonic: a.monotonic.min(b.monotonic),
                total: a.total.min(b.total),
            })),
            (end, None) | (None, end) => Deadline(end),
        }
    }

    /// The time that is left: zero if the lease has ended, `None` if it never ends. The clock that shows less
    /// time decides. The monotonic clock stops while a machine is suspended. The other one may be set back:
    /// on some systems it is the wall clock.
    pub fn remaining(&self, now: Moment) -> Option<Duration> {
        let end = self.0?;
        let monotonic = end.monotonic.saturating_duration_since(now.monotonic);
        Some(monotonic.min(end.total.saturating_sub(now.total)))
    }

    pub fn is_past(&self, now: Moment) -> bool {
        self.remaining(now).is_some_and(|left| left.is_zero())
    }

    /// The end on the monotonic clock.
    pub fn instant(&self) -> Option<Instant> {
        self.0.map(|end| end.monotonic)
    }
}

/// The options of a permit's lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseOptions {
    /// The lease that a refresh asks for, in ms; 0: permanent.
    pub lease_ms: u64,
    pub renewed: bool,
    /// The caller chose the id. Therefore another caller may hold with the same id by now.
    pub own_id: bool,
    /// The minimum hold in ms; 0: none.
    pub at_least_ms: u64,
}

impl LeaseOptions {
    /// The lease that the first call asks for. A permanent lease begins with 30 s, so that a permit whose
    /// reply was lost ends by itself. No lease ends before the minimum hold.
    pub fn first_lease_ms(&self) -> u64 {
        let lease_ms = match self.lease_ms {
            0 if fault!("a permanent permit is one before it is confirmed") => 0,
            0 => u64::try_from(DEFAULT.as_millis()).unwrap_or(u64::MAX),
            lease_ms => lease_ms,
        };
        lease_ms.max(self.at_least_ms)
    }
}

/// A lease in the scripts' unit: whole milliseconds.
pub fn to_ms(lease: Duration) -> Result<u64, Invalid> {
    in_range("lease", lease, SHORTEST_MS, ". For a lease without an end, use `Lease::PERMANENT`")
}

/// A time in the scripts' unit: whole milliseconds.
pub fn checked_ms(what: &str, time: Duration) -> Result<u64, Invalid> {
    in_range(what, time, 1, "")
}

fn in_range(what: &str, time: Duration, least: u64, remedy: &str) -> Result<u64, Invalid> {
    match u64::try_from(time.as_millis()) {
        Ok(ms) if (least..=LONGEST_MS).contains(&ms) => Ok(ms),
        _ => Err(Invalid::new(
            what,
            format!("{time:?} is out of range. Accepted: {least} ms to 100 years{remedy}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn now() -> Moment {
        Moment::new(Instant::now(), 2 * HOUR)
    }

    #[test]
    fn a_lease_counts_from_before_the_call_and_less_a_millisecond() {
        let sent = now();
        let end = Deadline::after(sent, Some(Duration::from_millis(500)));
        assert_eq!(end.instant(), Some(sent.instant() + Duration::from_millis(499)));
        assert!(!end.is_past(sent));
        assert!(Deadline::after(sent, Some(Duration::ZERO)).is_past(sent));
        assert_eq!(Deadline(None).remaining(sent), None);
    }

    #[test]
    fn the_clock_that_shows_less_decides() {
        let sent = now();
        let end = Deadline::after(sent, Some(Duration::from_secs(30)));
        let later = |monotonic, total| Moment::new(sent.monotonic + Duration::from_secs(monotonic), total);
        // The machine was suspended: the monotonic clock stopped.
        assert!(!end.is_past(later(1, sent.total + Duration::from_secs(29))));
        assert!(end.is_past(later(1, sent.total + Duration::from_secs(30))));
        // The wall clock, on a system without a better one, was set back by an hour. The monotonic clock
        // still counts.
        assert!(end.is_past(later(30, sent.total - HOUR)));
    }

    #[test]
    fn the_earlier_of_two_ends_counts() {
        let sent = now();
        let short = Deadline::after(sent, Some(Duration::from_secs(1)));
        let long = Deadline::after(sent, Some(Duration::from_secs(9)));
        assert_eq!(short.earlier(long).instant(), short.instant());
        assert_eq!(Deadline(None).earlier(long).instant(), long.instant());
    }

    #[test]
    fn leases_in_whole_milliseconds() {
        assert_eq!(to_ms(Duration::from_micros(2_900)), Ok(2));
        assert!(to_ms(Duration::from_micros(1_999)).is_err());
        assert_eq!(checked_ms("life", Duration::from_micros(1_900)), Ok(1));
        assert!(checked_ms("life", Duration::from_micros(999)).is_err());
        assert!(to_ms(Duration::from_secs(101 * 366 * 86_400)).is_err());
    }
}
