//! The command while it runs under its permits.

use super::change::How;
use super::deadline::{self, Deadline, Need};
use super::processes::{self, HELD, Processes};
use super::{Caller, Event, clock, signals, thread};
use crate::args::{Limit, RunArgs};
use crate::ended::{Ended, LOST};
use luagate::errors::PermitError;
use luagate::{Permit, Released};
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest time between two looks at the permits. A suspended machine is noticed after that.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// The time between two renewals: a permit that was revoked, or that a server has forgotten, is noticed after
/// that.
const RENEWAL: Duration = Duration::from_secs(1);
/// A time between two looks that shows that this process did not run.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the system may take to end a process after KILL.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// Why the command was ended.
#[derive(Clone, Copy)]
enum Reason {
    Revoked,
    NotRenewed,
    Paused(Duration),
}

pub struct Running<'a> {
    caller: &'a mut Caller,
    args: &'a RunArgs,
    deadline: Deadline,
    processes: Processes,
    permits: Permits,
    names: String,
    /// Set when the command got TERM or KILL because of its permit.
    reason: Option<Reason>,
    /// It was reported that a process cannot be ended.
    has_reported: bool,
    /// The time that was left at the last look, and when that was.
    last_left: Duration,
    last_look: Duration,
}

impl<'a> Running<'a> {
    pub fn start(
        caller: &'a mut Caller,
        args: &'a RunArgs,
        deadline: Deadline,
        permits: Vec<Permit>,
    ) -> Result<Running<'a>, Ended> {
        let join = |texts: Vec<String>| texts.join(" ");
        let names = join(caller.claims.iter().map(|claim| claim.name.name.clone()).collect());
        let ids = join(permits.iter().map(|permit| permit.id().to_owned()).collect());
        let around = std::env::var(HELD).unwrap_or_default();
        let variables = [
            ("LUAGATE_NAME", names.clone()),
            ("LUAGATE_ID", ids.clone()),
            ("LUAGATE_FENCE", join(permits.iter().map(|permit| permit.fence().to_string()).collect())),
            (HELD, format!("{around} {ids}").trim().to_owned()),
        ];
        caller.guard_holds(&permits);
        for (claim, permit) in caller.claims.iter().zip(&permits) {
            if let Some(Limit::Declared(limit)) = claim.limit
                && let Some(stored) = permit.limit().filter(|stored| *stored != limit)
                && !args.permit.quiet
            {
                let name = &claim.name.name;
                caller.report.tell(format!(
                    "the limit of {name} in force is {stored}, not {limit}. Pass -n {stored}, or change it with \
                     `luagate resize {name} {limit}`"
                ));
            }
        }
        let has_group = caller.terminal.is_none() && !args.foreground;
        let mark = permits.first().map(Permit::id).unwrap_or_default();
        caller.stops.store(caller.may_stop(), Ordering::Release);
        let others = take(&mut caller.others);
        let started = Processes::start(&args.command, &variables, mark, has_group, others).and_then(
            |(processes, start_sign)| {
                caller.guard.watches(&processes);
                if let Some(signal) = caller.ended_by() {
                    processes.give_up(start_sign); // the signal may have come before the command was there to get it
                    return Err(Ended::by_signal(signal));
                }
                start_sign.give();
                Ok(processes)
            },
        );
        let processes = match started {
            Ok(processes) => processes,
            Err(ended) => {
                signals::block();
                caller.release(permits);
                return Err(ended);
            }
        };
        let (permits, last_look) = (Permits::new(permits), clock::now());
        let (reason, has_reported, last_left) = (None, false, Duration::ZERO);
        Ok(Running {
            caller,
            args,
            deadline,
            processes,
            permits,
            names,
            reason,
            has_reported,
            last_left,
            last_look,
        })
    }

    /// Returns the exit status, after the command has ended and the permits are released.
    pub fn supervise(mut self) -> Result<u8, Ended> {
        let status = loop {
            let wait = self.look();
            // Any other event, and a timeout: a look is due.
            if let Ok(Event::Signal { signal, by_terminal }) = self.caller.events.recv_timeout(wait) {
                self.got(signal, by_terminal);
            }
            match self.change() {
                Some(How::Exited(status)) => break Ok(status),
                Some(How::Killed(signal)) => {
                    if signal == Signal::SIGKILL as i32 {
                        self.look(); // perhaps the guard has ended it, because its permit ended
                    }
                    break Err(signals::ended_by(signal));
                }
                Some(How::Stopped(signal)) => self.has_stopped(signal),
                Some(How::Continued) | None => {}
            }
        };
        self.end(status)
    }

    /// The next change of the command itself.
    fn change(&mut self) -> Option<How> {
        loop {
            let change = self.caller.changed()?;
            if change.child == self.processes.leader() {
                return Some(change.how);
            }
        }
    }

    fn got(&mut self, signal: Signal, by_terminal: bool) {
        let has_stopped = signals::stops(signal) && self.caller.stops.load(Ordering::Acquire);
        if has_stopped || by_terminal && !self.processes.has_group() {
            return; // the terminal and the shell send it to the command too
        }
        self.processes.pass_on(signal);
        if signals::ends(signal) {
            self.processes.pass_on(Signal::SIGCONT); // one that is stopped would not notice it
        }
    }

    /// The command was stopped. At a terminal this process stops too, so that the shell goes on. Returns when
    /// it is continued. Meanwhile nothing renews the lease.
    fn has_stopped(&mut self, by: i32) {
        let Some(terminal) =
            self.caller.terminal.as_ref().filter(|_| self.caller.stops.load(Ordering::Acquire))
        else {
            return;
        };
        let wanted_terminal = [Signal::SIGTTIN, Signal::SIGTTOU].map(|signal| signal as i32).contains(&by);
        if wanted_terminal && terminal.is_foreground() {
            self.processes.pass_on(Signal::SIGCONT); // `fg` came in between
        } else if self.processes.is_stopped() {
            let _ = raise(Signal::SIGSTOP);
            self.look(); // before the command is continued: the permit may have ended meanwhile
            self.processes.pass_on(Signal::SIGCONT);
        }
    }

    /// Ends the command if its permit ends. Returns the time until the next look.
    fn look(&mut self) -> Duration {
        let now = clock::now();
        let passed = now.saturating_sub(self.last_look);
        self.last_look = now;
        let left = self.permits.left();
        // Its lease would have gone on.
        let is_early = left.is_zero() && self.last_left > passed;
        self.last_left = left;
        self.caller.guard.restart();
        self.caller.guard.ends_in(self.deadline.until_guard(left), self.deadline.grace);
        let reason = || {
            if left.is_zero() && passed > PAUSE {
                Reason::Paused(passed)
            } else if is_early {
                Reason::Revoked
            } else {
                Reason::NotRenewed
            }
        };
        match self.deadline.need(left) {
            Need::Nothing(time) => time.min(LONGEST_SLEEP),
            Need::Term(time) => {
                if self.reason.is_none() {
                    self.reason = Some(reason());
                    self.processes.terminate();
                }
                time.min(LONGEST_SLEEP)
            }
            Need::Kill => {
                self.reason = self.reason.or(Some(reason()));
                self.kill();
                LONGEST_SLEEP
            }
        }
    }

    fn kill(&mut self) {
        let foreign = self.processes.kill();
        if !foreign.is_empty() && !std::mem::replace(&mut self.has_reported, true) {
            self.caller.report.tell(format!("cannot end what belongs to another user: {}", listed(foreign)));
        }
    }

    fn end(mut self, status: Result<u8, Ended>) -> Result<u8, Ended> {
        if self.reason.is_some() {
            self.kill(); // also what has left the group
        }
        let left = self.end_left_behind();
        if status.is_err()
            && let Some(terminal) = &self.caller.terminal
        {
            terminal.restore();
        }
        let names = &self.names;
        let gone = if left.is_empty() {
            let released = self.caller.release(self.permits.take());
            released.iter().any(|released| matches!(released, Ok(Released::Gone)))
        } else {
            let text = listed(left.clone());
            let report = format!(
                "the command goes on: {text}. The permit of {names} is not released, and ends with its lease"
            );
            self.caller.report.tell(report);
            self.permits.leave();
            false
        };
        let Some(reason) = self.reason else {
            if gone {
                self.caller.report.tell(format!(
                    "the permit of {names} was lost before the command ended. Another one may have run at the same time"
                ));
            }
            return status;
        };
        let why = match reason {
            Reason::Revoked => "it was revoked, or the server has lost it".to_owned(),
            Reason::NotRenewed => "the server was not reached in time to renew the lease".to_owned(),
            Reason::Paused(time) => format!("this process did not run for {}", crate::table::age(time)),
        };
        let what = if left.is_empty() && !self.has_reported {
            "the command was ended"
        } else {
            "the command could not be ended"
        };
        Err(Ended::new(LOST, format!("the permit of {names} was lost and {what}: {why}")))
    }

    /// Ends what the command has left behind: TERM, and KILL later. Returns the processes that could not be
    /// ended.
    fn end_left_behind(&mut self) -> Vec<Pid> {
        let mut left = self.processes.left_behind();
        if left.is_empty() {
            return left;
        }
        let begun = clock::now();
        let mut kill_at = begun + self.args.kill_after;
        if self.reason.is_none() {
            processes::terminate(&left);
        }
        while !left.is_empty() {
            let now = clock::now();
            if now >= kill_at || self.reason.is_some() {
                for process in &left {
                    let _ = kill(*process, Signal::SIGKILL);
                }
                if now >= kill_at + AFTER_KILL {
                    break;
                }
                kill_at = kill_at.min(now);
            }
            self.look();
            if let Ok(Event::Signal { signal, .. }) =
                self.caller.events.recv_timeout(Duration::from_millis(5))
                && signals::ends(signal)
            {
                kill_at = clock::now();
            }
            self.caller.reap();
            left.retain(|process| !processes::has_ended(*process));
            if left.is_empty() {
                left = self.processes.left_behind(); // a search of all processes
            }
        }
        left
    }
}

/// Processes for a text.
fn listed(mut processes: Vec<Pid>) -> String {
    processes.sort_unstable();
    let texts: Vec<String> = processes.iter().map(Pid::to_string).collect();
    format!("process {}", texts.join(", "))
}

/// The permits of the command. A thread renews them every second.
struct Permits {
    permits: Arc<Vec<Permit>>,
    renewal: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Permits {
    fn new(permits: Vec<Permit>) -> Permits {
        let permits = Arc::new(permits);
        let (stop, stopped) = channel();
        let renewed = permits.clone();
        let renewal = thread::start(move || {
            signals::block();
            while stopped.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
                let results = Permit::refresh_each(renewed.iter());
                if results.iter().any(|result| matches!(result, Err(PermitError::Lost(_)))) {
                    return; // `on_lost` has reported it
                }
            }
        });
        Permits { permits, renewal: renewal.ok().map(|thread| (stop, thread)) }
    }

    /// The time until the first of them ends.
    fn left(&self) -> Duration {
        deadline::left(&self.permits)
    }

    /// From now on this thread gets no signals.
    fn take(mut self) -> Vec<Permit> {
        signals::block();
        if let Some((stop, thread)) = self.renewal.take() {
            drop(stop);
            let _ = thread.join();
        }
        Arc::into_inner(self.permits).unwrap_or_default()
    }

    /// They end with their leases.
    fn leave(self) {
        self.take().into_iter().for_each(|permit| drop(permit.into_id()));
    }
}
