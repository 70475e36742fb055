//! A process of this machine.

#[cfg(any(target_os = "linux", target_os = "android"))]
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::io;

/// A process. Another one that gets the same id later differs by its start. That is not a date, which a step
/// of the clock would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    id: i32,
    start: String,
}

impl Process {
    /// `None`: it has ended, or there never was one.
    pub fn of(id: i32) -> io::Result<Option<Process>> {
        Ok(start(id)?.map(|start| Process { id, start }))
    }

    /// The name of its program, where the system shows it.
    fn name(&self) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.id)).ok()?;
        Some(name.trim_end().to_owned())
    }

    /// Also if the system does not tell, as when too many files are open.
    pub fn is_running(&self) -> bool {
        start(self.id).map_or(true, |start| start.as_ref() == Some(&self.start))
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
fn start(id: i32) -> io::Result<Option<String>> {
    let stat = match std::fs::read_to_string(format!("/proc/{id}/stat")) {
        // Before the file is opened, and after that.
        Err(error)
            if [Errno::ENOENT, Errno::ESRCH]
                .map(|none| Some(none as i32))
                .contains(&error.raw_os_error()) =>
        {
            return Ok(None);
        }
        stat => stat?,
    };
    // The name before it may contain spaces and parentheses. See proc(5).
    let fields: Vec<&str> =
        stat.rsplit_once(") ").map_or(Vec::new(), |(_, after)| after.split(' ').collect());
    let (Some(state), Some(start)) = (fields.first(), fields.get(19)) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    Ok((!["Z", "X"].contains(state)).then(|| (*start).to_owned()))
}

/// The start of a process that has not ended.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn start(id: i32) -> io::Result<Option<String>> {
    let found =
        std::process::Command::new("ps").args(["-o", "state=,lstart=", "-p", &id.to_string()]).output()?;
    let found = String::from_utf8_lossy(&found.stdout);
    let running = found.trim().split_once(' ').filter(|(state, _)| !state.starts_with('Z'));
    Ok(running.map(|(_, start)| start.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_until_it_has_ended_although_its_parent_does_not_wait_for_it() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id() as i32).unwrap().unwrap();
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
        let own = Process::of(std::process::id() as i32).unwrap().unwrap();
        assert!(own.is_running());
        assert!(!Process { start: "1".to_owned(), ..own }.is_running());
    }
}
