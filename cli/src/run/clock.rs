//! A clock that also counts the time in which the machine was suspended, and that all processes share.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The time since the machine was started.
pub fn now() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::CLOCK_MONOTONIC;
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}
