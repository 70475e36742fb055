//! The processes of the command: how they are started, found and ended.

use super::change::Change;
use super::program::{own_program, spawn};
use super::report::Report;
use super::start_sign::{START_SIGN, StartSign};
use super::{change, mark, signals, start_sign};
use crate::address::HIDDEN_URL;
use crate::ended::{Ended, NOT_EXECUTABLE, NOT_FOUND};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, getpid, getppid};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::env;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;
use sysinfo::{Process, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System, UpdateKind};

/// The variable with the ids of all permits under which a process runs, also of those around them.
pub const HELD: &str = "LUAGATE_HELD";

/// The name of the process of a guard. `pkill luagate` and `killall luagate` do not mean it.
pub const GUARD: &CStr = c"permit-guard";

/// How often the processes are searched: one of them may start another one meanwhile.
const SEARCHES: usize = 10;

/// The processes that the command has started: those in its process group, those below it, and those that
/// have its variables or its mark.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Processes {
    leader: i32,
    /// The command has a separate process group. Otherwise it is in the group of luagate.
    has_group: bool,
    /// The id of a permit, which they have in their variables.
    mark: String,
    /// See `mark`.
    #[serde(default)]
    limit: Option<u64>,
    /// The process of `luagate run`, as long as it lives: what the command leaves behind becomes its child.
    #[serde(default)]
    owner: Option<i32>,
    /// Its children that do not belong to the command.
    #[serde(default)]
    others: HashSet<i32>,
}

impl Processes {
    /// Starts the command, which waits for its start sign. `id`: that of one of its permits. `others`: see
    /// `children_before`.
    pub fn start(
        command: &[OsString],
        variables: &[(&str, String)],
        id: &str,
        has_group: bool,
        others: HashSet<Pid>,
    ) -> Result<(Processes, StartSign), Ended> {
        // The processes that the command leaves behind become children of this process, so it knows when they
        // have ended.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let _ = nix::sys::prctl::set_child_subreaper(true);
        let mut process = own_program()?;
        process.args(["launch", "--parent", &getpid().to_string()]);
        let stopping = SigSet::from_iter(signals::STOPPING);
        let blocked_here = SigSet::thread_get_mask().map_err(io::Error::from)?;
        for signal in stopping.iter().filter(|signal| !blocked_here.contains(*signal)) {
            process.args(["--unblock", signal.as_str()]);
        }
        process.arg("--").args(command);
        process.envs(variables.iter().map(|(name, value)| (name, value))).env_remove(HIDDEN_URL);
        if has_group {
            process.process_group(0);
        }
        let (start_sign, _reader) = StartSign::of(&mut process)?;
        let (child, limit) = mark::starting(|| spawn(&mut process, stopping));
        let leader = child
            .map_err(|error| Ended::new(NOT_EXECUTABLE, format!("cannot start a process: {error}")))?
            .id() as i32;
        let (owner, others) = (Some(getpid().as_raw()), others.into_iter().map(Pid::as_raw).collect());
        Ok((Processes { leader, has_group, mark: id.to_owned(), limit, owner, others }, start_sign))
    }

    /// Ends the launch step, which has not executed the command.
    pub fn give_up(self, start_sign: StartSign) {
        drop(start_sign);
        if kill(self.leader(), Signal::SIGKILL).is_ok() {
            change::await_end(self.leader());
        }
    }

    /// `luagate run` has died. Another process may get its id.
    pub fn lose_owner(&mut self) {
        self.owner = None;
    }

    /// The process of the command itself.
    pub fn leader(&self) -> Pid {
        Pid::from_raw(self.leader)
    }

    pub fn has_group(&self) -> bool {
        self.has_group
    }

    /// Whether the process of the command is stopped.
    pub fn is_stopped(&self) -> bool {
        look_at(self.leader(), |process| process.status() == ProcessStatus::Stop).unwrap_or(false)
    }

    /// Passes a signal on, to the group if the command has one.
    pub fn pass_on(&self, signal: Signal) {
        let _ = if self.has_group { killpg(self.leader(), signal) } else { kill(self.leader(), signal) };
    }

    /// Asks all of them to end, also those that are stopped.
    pub fn terminate(&self) {
        let processes: Vec<Pid> =
            self.find().into_iter().filter(|process| !self.is_in_group(*process)).collect();
        if self.has_group {
            let _ =
                killpg(self.leader(), Signal::SIGTERM).and_then(|()| killpg(self.leader(), Signal::SIGCONT));
        }
        terminate(&processes);
    }

    /// Ends all of them with KILL. Returns those of other users, which this process cannot end.
    pub fn kill(&self) -> Vec<Pid> {
        if self.has_group {
            let _ = killpg(self.leader(), Signal::SIGKILL);
        }
        let (mut seen, mut foreign) = (HashSet::new(), Vec::new());
        for _ in 0..SEARCHES {
            let new: Vec<Pid> = self.find().into_iter().filter(|process| seen.insert(*process)).collect();
            if new.is_empty() {
                break;
            }
            foreign.extend(
                new.into_iter().filter(|process| kill(*process, Signal::SIGKILL) == Err(Errno::EPERM)),
            );
        }
        foreign
    }

    /// Those that the command has left behind in its group.
    pub fn left_behind(&self) -> Vec<Pid> {
        if self.has_group && killpg(self.leader(), None) == Err(Errno::ESRCH) {
            return Vec::new();
        }
        let group = if self.has_group { self.leader() } else { getpgrp() };
        self.find().into_iter().filter(|process| getpgid(Some(*process)) == Ok(group)).collect()
    }

    /// All of them that have not ended.
    pub fn find(&self) -> Vec<Pid> {
        let system = snapshot(UpdateKind::Always);
        let mut children = children(&system);
        let mut next = vec![self.leader()];
        let owner = self.owner.map(Pid::from_raw);
        let below = owner.and_then(|owner| children.remove(&owner)).unwrap_or_default();
        next.extend(below.into_iter().filter(|child| !self.others.contains(&child.as_raw())));
        let mut found = HashSet::new();
        while let Some(process) = next.pop() {
            found.insert(process);
            next.extend(children.remove(&process).unwrap_or_default());
        }
        system
            .processes()
            .iter()
            .map(|(id, process)| (pid(*id), process))
            .filter(|(id, process)| !is_over(process) && *id != getpid() && Some(*id) != owner)
            .filter(|(id, process)| {
                found.contains(id) || self.is_in_group(*id) || self.has_mark(*id, process)
            })
            .map(|(id, _)| id)
            .collect()
    }

    /// Whether the process is in the separate group of the command.
    fn is_in_group(&self, process: Pid) -> bool {
        self.has_group && getpgid(Some(process)) == Ok(self.leader())
    }

    fn has_mark(&self, id: Pid, process: &Process) -> bool {
        let held = |variable: &OsString| {
            let value =
                variable.as_bytes().strip_prefix(HELD.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            value.is_some_and(|ids| ids.split(|byte| *byte == b' ').any(|id| id == self.mark.as_bytes()))
        };
        process.environ().iter().any(held) || self.limit.is_some_and(|limit| mark::is_on(id, limit))
    }
}

/// The children that this process has before it starts any, as after `exec` in a shell.
pub fn children_before() -> HashSet<Pid> {
    match Change::next() {
        Err(rustix::io::Errno::CHILD) => HashSet::new(), // usually: then the processes need not be searched
        _ => children(&snapshot(UpdateKind::Never)).remove(&getpid()).into_iter().flatten().collect(),
    }
}

/// Asks these to end, also if they are stopped.
pub fn terminate(processes: &[Pid]) {
    for process in processes {
        let _ = kill(*process, Signal::SIGTERM).and_then(|()| kill(*process, Signal::SIGCONT));
    }
}

/// The step between `luagate run` and the command: the command gets a signal if its parent dies, and is
/// executed. `unblock`: the signals that were blocked for the start of this step.
pub fn launch(parent: i32, unblock: Vec<Signal>, command: &[OsString]) -> Result<u8, Ended> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGTERM);
    if getppid().as_raw() != parent || !start_sign::is_given() {
        return Err(Ended::silently(NOT_EXECUTABLE)); // it has died already
    }
    let [program, arguments @ ..] = command else {
        return Err(Ended::usage("no COMMAND"));
    };
    SigSet::from_iter(unblock).thread_unblock().map_err(io::Error::from)?;
    let mut error = Command::new(program).args(arguments).env_remove(START_SIGN).exec();
    if error.raw_os_error() == Some(Errno::ENOEXEC as i32) {
        // A script without `#!`: the shell runs it, as for execvp(3).
        error = Command::new("/bin/sh").arg(path_of(program)).args(arguments).env_remove(START_SIGN).exec();
    }
    let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    // Its report does not wait for a stderr that is blocked: meanwhile the permit would be held.
    let report = Report::start()?;
    report.tell(format!("cannot run {}: {error}", program.display()));
    report.flush();
    Err(Ended::silently(status))
}

/// The file of a program, as the system finds it.
fn path_of(program: &OsStr) -> PathBuf {
    let is_path = program.as_bytes().contains(&b'/');
    let folders = env::var_os("PATH").filter(|_| !is_path).unwrap_or_default();
    let found = env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| PathBuf::from(program))
}

/// The parent of a process.
pub fn parent(process: Pid) -> Option<Pid> {
    look_at(process, Process::parent)?.map(pid)
}

fn look_at<T>(process: Pid, look: impl FnOnce(&Process) -> T) -> Option<T> {
    let id = sysinfo::Pid::from_u32(process.as_raw() as u32);
    let mut system = no_processes();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[id]), false, kind(UpdateKind::Never));
    system.process(id).map(look)
}

fn kind(variables: UpdateKind) -> ProcessRefreshKind {
    ProcessRefreshKind::nothing().with_environ(variables).without_tasks()
}

/// Nothing is read yet. By itself, `System` would keep half of all files that may be open for each reading,
/// and would raise the limit of open files, also for the command.
fn no_processes() -> System {
    static KEEPS_NO_FILES: Once = Once::new();
    KEEPS_NO_FILES.call_once(|| {
        let limit = getrlimit(Resource::RLIMIT_NOFILE);
        sysinfo::set_open_files_limit(0);
        let _ = limit.map(|(soft, hard)| setrlimit(Resource::RLIMIT_NOFILE, soft, hard));
    });
    System::new()
}

fn snapshot(variables: UpdateKind) -> System {
    let mut system = no_processes();
    system.refresh_processes_specifics(ProcessesToUpdate::All, false, kind(variables));
    system
}

fn pid(id: sysinfo::Pid) -> Pid {
    Pid::from_raw(id.as_u32() as i32)
}

/// The children of each process, apart from guards.
fn children(system: &System) -> HashMap<Pid, Vec<Pid>> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for (id, process) in system.processes() {
        if let Some(parent) = process.parent()
            && process.name().as_bytes() != GUARD.to_bytes()
        {
            children.entry(pid(parent)).or_default().push(pid(*id));
        }
    }
    children
}

/// A process that was found, and when it began: another one may get its id later.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Found {
    id: Pid,
    begun: u64,
}

impl Found {
    /// `None`: it has ended.
    pub fn of(id: Pid) -> Option<Found> {
        look_at(id, |process| (!is_over(process)).then(|| Found { id, begun: process.start_time() }))?
    }

    pub fn is_there(self) -> bool {
        Found::of(self.id) == Some(self)
    }

    pub fn kill(self) {
        if self.is_there() {
            let _ = kill(self.id, Signal::SIGKILL);
        }
    }
}

/// Whether a process has ended, also if its parent has not taken notice of that.
pub fn has_ended(process: Pid) -> bool {
    look_at(process, is_over).unwrap_or(true)
}

fn is_over(process: &Process) -> bool {
    matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead)
}
