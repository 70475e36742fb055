//! A process of this machine.

use serde::{Deserialize, Serialize};

/// A process. Another one that gets the same id later differs by its start. That is not a date, which a step of the clock would
/// change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    id: i32,
    start: String,
}

impl Process {
    /// `None`: it has ended, or there never was one.
    pub fn of(id: i32) -> Option<Process> {
        Some(Process { id, start: start(id)? })
    }

    /// The name of its program, where the system shows it.
    fn name(&self) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.id)).ok()?;
        Some(name.trim_end().to_owned())
    }

    pub fn is_running(&self) -> bool {
        start(self.id).is_some_and(|start| start == self.start)
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.id),
            None => write!(f, "{}", self.id),
        }
    }
}

/// The start of a process that has not ended.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn start(id: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before it may contain spaces and parentheses. See proc(5).
    let (_, after) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = after.split(' ').collect();
    let (state, start) = (fields.first()?, fields.get(19)?);
    (!["Z", "X"].contains(state)).then(|| (*start).to_owned())
}

/// The start of a process that has not ended.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn start(id: i32) -> Option<String> {
    let found = std::process::Command::new("ps").args(["-o", "state=,lstart=", "-p", &id.to_string()]).output().ok()?;
    let found = String::from_utf8_lossy(&found.stdout);
    let (state, start) = found.trim().split_once(' ')?;
    (!state.starts_with('Z')).then(|| start.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_until_it_has_ended_although_its_parent_does_not_wait_for_it() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id() as i32).unwrap();
        assert!(process.is_running());
        child.kill().unwrap();
        while process.is_running() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(!process.is_running());
    }

    #[test]
    fn a_later_process_with_the_same_id_is_another_one() {
        let own = Process::of(std::process::id() as i32).unwrap();
        assert!(own.is_running());
        assert!(!Process { start: "1".to_owned(), ..own }.is_running());
    }
}
