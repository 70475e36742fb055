//! The signals that this process receives, as events.

use super::{Event, thread};
use crate::ended::Ended;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getpid;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

/// Those that are passed on to the command or stop the wait. SIGKILL and SIGSTOP cannot be received.
const RECEIVED: [Signal; 11] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGCONT,
];

/// Those that ask a program to stop.
pub const STOPPING: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// Sends an event for each signal from now on. A signal that this process ignores stays ignored, as after
/// `nohup`.
pub fn listen(events: Sender<Event>) -> Result<(), Ended> {
    let received = not_ignored(RECEIVED);
    let received = received.chain([Signal::SIGCHLD]).map(|signal| signal as i32);
    let mut signals = SignalsInfo::<WithOrigin>::new(received)?;
    thread::start(move || {
        for origin in &mut signals {
            let Ok(signal) = Signal::try_from(origin.signal) else { continue };
            // A terminal sends its signals, such as INT for Ctrl-C, to all processes of the group.
            let by_terminal = matches!(origin.cause, Cause::Kernel) || origin.process.is_none();
            let event = match signal {
                Signal::SIGCHLD => Event::ChildChanged,
                signal => Event::Signal { signal, by_terminal },
            };
            if events.send(event).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// While this is true, a signal that stops programs stops this process too, as without `listen`.
pub fn stop_if(condition: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in not_ignored(STOPPING) {
        signal_hook::flag::register_conditional_default(signal as i32, condition.clone())?;
    }
    Ok(())
}

/// Keeps signals away from this thread and from the threads that it starts. A signal would interrupt a call
/// to the server, which then looks like a broken connection. The thread of `listen` receives them.
pub fn block() {
    let _ = SigSet::all().thread_block();
}

/// Whether this signal asks a program to end.
pub fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT)
}

/// Whether this signal asks a program to stop.
pub fn stops(signal: Signal) -> bool {
    STOPPING.contains(&signal)
}

/// Ends this process by the signal that has ended its command or its wait, so that a shell notices it: after
/// Ctrl-C it ends the script too. The first process of a container, which no signal ends, exits with 128 + n
/// instead.
pub fn end_by(signal: Signal) {
    if getpid().as_raw() == 1 {
        std::process::exit(128 + signal as i32);
    }
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    let _ = SigSet::all().thread_unblock();
    if signal == Signal::SIGKILL {
        let _ = nix::sys::signal::raise(signal);
    } else {
        let _ = signal_hook::low_level::emulate_default_handler(signal as i32);
    }
}

/// The end after a signal has ended the command. A real-time signal has no name here: then the exit status is
/// 128 + n.
pub fn ended_by(signal: i32) -> Ended {
    Signal::try_from(signal)
        .map_or_else(|_| Ended::silently(128_u8.saturating_add(signal as u8)), Ended::by_signal)
}

/// Those of these signals that this process does not ignore. All where the system does not tell.
fn not_ignored(signals: impl IntoIterator<Item = Signal>) -> impl Iterator<Item = Signal> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    signals.into_iter().filter(move |signal| ignored & (1 << (*signal as i32 - 1)) == 0)
}
