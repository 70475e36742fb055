//! A mark that a command passes on to all its processes, also to those that have no variables and have left
//! their parents.
//!
//! It is a limit of the system that processes inherit, and that everybody may read: the time of a process
//! that is scheduled in real time. The values are so large that they limit nothing.

use nix::unistd::Pid;

/// 73,000 years, in microseconds. A limit below it is a real one, and stays as it is.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const LEAST: u64 = 1 << 61;

/// Runs this, and marks the processes that it starts. Returns the mark too, if the system has this limit.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub fn starting<T>(start: impl FnOnce() -> T) -> (T, Option<u64>) {
    use nix::sys::resource::{Resource::RLIMIT_RTTIME, getrlimit, setrlimit};
    let mark = LEAST | (uuid::Uuid::new_v4().as_u128() as u64 >> 4);
    // One that is there already is that of a `luagate run` around this one.
    let own = getrlimit(RLIMIT_RTTIME).ok().filter(|(soft, hard)| *soft >= LEAST && *hard >= mark);
    let marked = own.filter(|(_, hard)| setrlimit(RLIMIT_RTTIME, mark, *hard).is_ok());
    let started = start();
    if let Some((soft, hard)) = marked {
        let _ = setrlimit(RLIMIT_RTTIME, soft, hard);
    }
    (started, marked.map(|_| mark))
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
pub fn starting<T>(start: impl FnOnce() -> T) -> (T, Option<u64>) {
    (start(), None)
}

/// Whether this process has the mark.
pub fn is_on(process: Pid, mark: u64) -> bool {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap_or_default();
    let own = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"));
    own.and_then(|values| values.split_whitespace().next()).and_then(|soft| soft.parse().ok()) == Some(mark)
}
