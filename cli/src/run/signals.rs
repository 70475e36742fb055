//! The signals that this process receives, as events.

use super::Event;
use nix::sys::signal::{SigSet, Signal};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::mpsc::Sender;
use std::thread;

/// Those that are passed on to the command. SIGKILL and SIGSTOP cannot be.
const FORWARDED: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Sends an event for each signal from now on. A signal that this process ignores stays ignored, as after `nohup`.
pub fn listen(events: Sender<Event>) -> io::Result<()> {
    let ignored = ignored();
    let received = FORWARDED.into_iter().filter(|signal| ignored & (1 << (*signal as i32 - 1)) == 0);
    let received = received.chain([Signal::SIGCHLD]).map(|signal| signal as i32);
    let mut signals = Signals::new(received)?;
    thread::spawn(move || {
        for signal in signals.forever().filter_map(|number| Signal::try_from(number).ok()) {
            let event = match signal {
                Signal::SIGCHLD => Event::ChildChanged,
                signal => Event::Signal(signal),
            };
            if events.send(event).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Keeps signals away from this thread and from the threads that it starts. A signal would interrupt a call to the server,
/// which then looks like a broken connection. The thread of `listen` receives them.
pub fn block() {
    let _ = SigSet::all().thread_block();
}

/// Whether this signal asks a program to end.
pub fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT)
}

/// A bit for each ignored signal. None where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
