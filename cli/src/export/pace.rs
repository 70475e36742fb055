//! Limits the calls in each second, so that the server has time for other clients.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The calls of this time may follow each other at once. A pause for each single call would take longer than
/// the call.
const AT_ONCE: Duration = Duration::from_millis(5);

/// The list of a holder or a waiter takes the server this part of the time of a call.
const ENTRIES: u32 = 20;

/// Shared by threads that call.
pub struct Pace {
    /// The time for one call.
    gap: Duration,
    next: Mutex<Instant>,
}

impl Pace {
    pub fn new(gap: Duration) -> Pace {
        Pace { gap, next: Mutex::new(Instant::now()) }
    }

    /// Blocks until a call may be made that takes the server as long as `calls` usual ones.
    pub fn wait(&self, calls: u32) {
        let now = Instant::now();
        let due = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let due = *next;
            *next = due.max(now) + self.gap * calls;
            due
        };
        let ahead = due.saturating_duration_since(now);
        if ahead > AT_ONCE {
            std::thread::sleep(ahead);
        }
    }

    /// Delays the next call, since the reply to the last one listed this number of holders and waiters.
    pub fn listed(&self, entries: usize) {
        let entries = u32::try_from(entries).unwrap_or(u32::MAX);
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) +=
            (self.gap / ENTRIES).saturating_mul(entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_micros(500);

    #[test]
    fn threads_share_the_pace() {
        let (pace, begun) = (Pace::new(GAP), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| pace.wait(1)));
            }
        });
        assert!(begun.elapsed() >= GAP * 200 - AT_ONCE - GAP, "{:?}", begun.elapsed());
        let begun = Instant::now();
        pace.wait(100);
        pace.wait(1);
        pace.listed(2_000);
        pace.wait(1);
        assert!(begun.elapsed() >= GAP * 200, "{:?}", begun.elapsed());
    }
}
