//! The processes below this one, also those that have left the process group of the command.

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use std::collections::{HashMap, HashSet};

/// How often the processes are searched: one of them may start another one meanwhile.
const SEARCHES: usize = 10;

/// Ends all of them with KILL, apart from `guard`. A process whose parent has ended is a child of this process. Does
/// nothing on a system without `/proc`.
pub fn kill_all(guard: Option<Pid>) {
    let mut ended = HashSet::new();
    for _ in 0..SEARCHES {
        let found = descendants(guard);
        let new: Vec<Pid> = found.into_iter().filter(|process| ended.insert(*process)).collect();
        if new.is_empty() {
            return;
        }
        for process in new {
            let _ = kill(process, Signal::SIGKILL);
        }
    }
}

fn descendants(guard: Option<Pid>) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = entry.file_name().to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw);
        if let Some(process) = process
            && let Some(parent) = parent(process)
            && Some(process) != guard
        {
            children.entry(parent).or_default().push(process);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![getpid()]);
    while let Some(process) = next.pop() {
        let below = children.remove(&process).unwrap_or_default();
        found.extend(&below);
        next.extend(below);
    }
    found
}

fn parent(process: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it may contain spaces and parentheses.
    let (_, after) = stat.rsplit_once(") ")?;
    after.split(' ').nth(1)?.parse().ok().map(Pid::from_raw)
}
