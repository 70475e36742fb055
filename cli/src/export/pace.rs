//! Limits the calls in each second, so that the server has time for other clients.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time for one call: 2,000 in a second.
const GAP: Duration = Duration::from_micros(500);

/// The calls of this time may follow each other at once. A pause for each single call would take longer than the call.
const AT_ONCE: Duration = Duration::from_millis(5);

/// Shared by threads that call.
pub struct Pace(Mutex<Instant>);

impl Pace {
    pub fn new() -> Pace {
        Pace(Mutex::new(Instant::now()))
    }

    /// Blocks until a call may be made that takes the server as long as `calls` usual ones.
    pub fn wait(&self, calls: u32) {
        let now = Instant::now();
        let due = {
            let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let due = *next;
            *next = due.max(now) + GAP * calls;
            due
        };
        let ahead = due.saturating_duration_since(now);
        if ahead > AT_ONCE {
            std::thread::sleep(ahead);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_pace() {
        let (pace, begun) = (Pace::new(), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| pace.wait(1)));
            }
        });
        assert!(begun.elapsed() >= GAP * 200 - AT_ONCE - GAP, "{:?}", begun.elapsed());
        let begun = Instant::now();
        pace.wait(100);
        pace.wait(1);
        assert!(begun.elapsed() >= GAP * 100, "{:?}", begun.elapsed());
    }
}
