//! The keeper: a small process that renews a permit after `luagate acquire` has ended.
//!
//! `acquire` starts it before the wait, connected by a socket, and sends it the permit as a line of JSON. The
//! keeper adopts the permit and answers. Then `acquire` prints the permit, says so in another line, and ends
//! after the answer. If the socket ends before that line, `acquire` has died or could not print: the keeper
//! releases the permit.

use super::process::Process;
use crate::address::{HIDDEN_URL, ServerArgs};
use crate::ended::{Ended, LOST, UNREACHABLE};
use crate::held::Held;
use crate::run::{self, thread};
use luagate::errors::PermitError;
use luagate::{Gate, Lease, Permit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd;
use serde::{Deserialize, Serialize};
use signal_hook::iterator::Signals;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// The name of its process. `pkill luagate` and `killall luagate` do not mean it.
const NAME: &CStr = c"permit-keeper";

/// The time between two looks at the permit and at the process.
const PERMIT_CHECK: Duration = Duration::from_secs(1);

/// How long `acquire` waits for the keeper's answer.
const ANSWER: Duration = Duration::from_secs(30);

/// How long the keeper waits until the permit is printed.
const CONFIRMATION: Duration = Duration::from_secs(10);

/// A permit, and how long to keep it.
#[derive(PartialEq, Serialize, Deserialize)]
pub struct Kept {
    server: ServerArgs,
    #[serde(flatten)]
    permit: Held,
    lease: Duration,
    process: Process,
    at_most: Option<Duration>,
}

impl Kept {
    pub fn new(
        server: &ServerArgs,
        permit: Held,
        lease: Duration,
        process: Process,
        at_most: Option<Duration>,
    ) -> Kept {
        Kept { server: server.resolved(), permit, lease, process, at_most }
    }
}

/// The keeper's answer: an exit status and a message if it could not adopt the permit.
type Answer = Result<(), (u8, Option<String>)>;

/// The keeper, seen from `acquire`. If this is dropped before the permit is confirmed, the keeper ends.
pub struct Keeper {
    id: u32,
    socket: UnixStream,
}

impl Keeper {
    /// Starts it. `name`: of the permit.
    pub fn start(name: &str) -> Result<Keeper, Ended> {
        let (socket, other) = UnixStream::pair()?;
        let mut command = run::own_program()?;
        command.arg0(OsStr::from_bytes(NAME.to_bytes())).args(["keeper", "--", name]);
        for variable in [HIDDEN_URL, "LUAGATE_URL", "REDIS_URL"] {
            command.env_remove(variable); // they may contain a password
        }
        command.stdin(OwnedFd::from(other)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = run::spawn(&mut command, SigSet::all()).map_err(|error| {
            Ended::new(UNREACHABLE, format!("the system refused a keeper process: {error}"))
        })?;
        Ok(Keeper { id: child.id(), socket })
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns when the keeper renews the permit.
    pub fn take_over(self, permit: &Kept) -> Result<Keeper, Ended> {
        let answer = self.send(permit).and_then(|()| self.answer());
        match answer {
            Ok(Ok(())) => Ok(self),
            Ok(Err((status, message))) => Err(Ended { message, ..Ended::silently(status) }),
            Err(error) => {
                Err(Ended::new(UNREACHABLE, format!("the keeper process does not answer: {error}")))
            }
        }
    }

    /// The permit was printed. Returns when the keeper knows it.
    pub fn confirm(self) -> Result<(), Ended> {
        match self.send(&"printed").and_then(|()| self.answer()) {
            Ok(Ok(())) => Ok(()),
            _ => Err(Ended::new(LOST, "the permit was released: the keeper process has ended")),
        }
    }

    /// The permit could not be printed. Returns when the keeper has released it and has ended.
    pub fn release(self) {
        let _ = self.socket.shutdown(Shutdown::Write).and_then(|()| self.answer().map(drop));
    }

    fn send(&self, value: &impl Serialize) -> io::Result<()> {
        (&self.socket).write_all(format!("{}\n", serde_json::to_string(value)?).as_bytes())
    }

    fn answer(&self) -> io::Result<Answer> {
        self.socket.set_read_timeout(Some(ANSWER))?;
        let mut line = String::new();
        BufReader::new(&self.socket).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// What happens while the keeper keeps a permit.
enum Event {
    /// It must release the permit.
    Release,
    Printed,
    Lost,
}

/// The keeper itself.
pub fn keep() -> Result<u8, Ended> {
    let socket = detach()?;
    let mut lines = BufReader::new(socket.try_clone()?).lines();
    let Some(Ok(line)) = lines.next() else { return Ok(0) }; // `acquire` has ended without a permit
    let kept: Kept = serde_json::from_str(&line).map_err(|error| Ended::usage(error.to_string()))?;
    SigSet::all().thread_block().map_err(io::Error::from)?; // a signal would interrupt a call to the server
    let (sender, events) = mpsc::channel();
    let lost = sender.clone();
    let adopted = release_at_term(sender.clone())
        .and_then(|()| listen(lines, sender))
        .and_then(|()| adopt(&kept, move || drop(lost.send(Event::Lost))));
    let answered =
        answer(&socket, &adopted.as_ref().map(drop).map_err(|ended| (ended.status, ended.message.clone())));
    let (gate, permit) = adopted?;
    if answered.is_ok() {
        watch(&kept, &permit, &socket, &events);
    }
    drop(permit);
    let _ = gate.flush(); // without a confirmation, the permit ends with its lease
    Ok(0)
}

fn answer(mut socket: &UnixStream, answer: &Answer) -> io::Result<()> {
    socket.write_all(format!("{}\n", serde_json::to_string(answer)?).as_bytes())
}

/// Returns when the permit is lost, or must be released.
fn watch(kept: &Kept, permit: &Permit, socket: &UnixStream, events: &Receiver<Event>) {
    let (begun, mut is_printed) = (Instant::now(), false);
    loop {
        match events.recv_timeout(PERMIT_CHECK) {
            Ok(Event::Printed) => {
                is_printed = true;
                let _ = answer(socket, &Ok(()));
            }
            Ok(Event::Lost | Event::Release) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let most = if is_printed { kept.at_most.unwrap_or(Duration::MAX) } else { CONFIRMATION };
        if begun.elapsed() >= most || !kept.process.is_running() {
            return;
        }
        // Tells whether it was released or revoked. Any other error may pass before the lease ends.
        if let Err(PermitError::Lost(_)) = permit.refresh() {
            return;
        }
    }
}

/// Leaves the session, the folder, and the files of `acquire`. Returns the socket.
fn detach() -> io::Result<UnixStream> {
    let inherited: Vec<i32> = std::fs::read_dir("/dev/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|file| *file > 2)
        .collect();
    for file in inherited {
        let _ = unistd::close(file);
    }
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    unistd::dup2_stdin(File::open("/dev/null")?)?;
    unistd::setsid()?;
    std::env::set_current_dir("/")?;
    // The threads that this one starts block them too, so no thread ever receives them.
    SigSet::from_iter([Signal::SIGHUP, Signal::SIGINT]).thread_set_mask()?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    nix::sys::prctl::set_name(NAME)?;
    Ok(socket)
}

/// Sends an event for a TERM signal.
fn release_at_term(events: Sender<Event>) -> Result<(), Ended> {
    let mut signals = Signals::new([Signal::SIGTERM as i32])?;
    thread::start(move || {
        let _ = SigSet::from(Signal::SIGTERM).thread_unblock();
        signals.forever().map(|_| events.send(Event::Release)).find(Result::is_err)
    })?;
    Ok(())
}

/// Sends an event when the permit is printed, or `acquire` has ended before.
fn listen(mut lines: Lines<BufReader<UnixStream>>, events: Sender<Event>) -> Result<(), Ended> {
    thread::start(move || {
        events.send(if let Some(Ok(_)) = lines.next() { Event::Printed } else { Event::Release })
    })?;
    Ok(())
}

fn adopt(kept: &Kept, on_lost: impl Fn() + Send + Sync + 'static) -> Result<(Gate, Permit), Ended> {
    let gate = kept.server.open()?;
    let semaphore = kept.permit.semaphore(&gate).ok_or_else(|| Ended::usage("unknown kind"))?;
    let semaphore = semaphore.lease(Lease::renewed(kept.lease));
    let adopted = semaphore.on_lost(move |_| on_lost()).adopt(&kept.permit.id).map_err(|error| match error {
        PermitError::Lost(_) => {
            Ended::new(LOST, format!("the permit of {} was lost before it was printed", kept.permit.name))
        }
        error => kept.server.at(Ended::of(error)),
    });
    Ok((gate, adopted?))
}
