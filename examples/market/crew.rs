//! The worker processes: starts, kills and stops them.

use crate::Outcome;
use crate::record::{Event, Record, What};
use std::env;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};

/// The running workers. They end when this value is dropped.
pub struct Crew(Vec<Worker>);

struct Worker {
    name: String,
    process: Child,
}

impl Crew {
    /// Starts `size` workers, named `worker-1` and so on.
    pub fn start(size: usize, prefix: &str, record: &Record) -> io::Result<Crew> {
        let mut crew = Crew(Vec::new());
        for number in 1..=size {
            crew.0.push(Worker::start(format!("worker-{number}"), prefix, record)?);
        }
        Ok(crew)
    }

    /// Kills this worker with SIGKILL. Returns after its process has ended.
    pub fn kill(&mut self, name: &str, record: &Record) -> Outcome<Event> {
        let at = self.0.iter().position(|worker| worker.name == name);
        let at = at.ok_or_else(|| format!("{name} is not a running worker"))?;
        let mut worker = self.0.swap_remove(at);
        worker.process.kill()?;
        worker.process.wait()?;
        let death = Event::now(name, What::Killed);
        record.append(&death)?;
        Ok(death)
    }

    /// Returns an error if a worker has ended before the bell.
    pub fn check(&mut self) -> Outcome {
        for worker in &mut self.0 {
            if worker.process.try_wait()?.is_some() {
                return Err(worker.last_words().into());
            }
        }
        Ok(())
    }

    /// Rings the bell, and waits until all workers have ended.
    pub fn send_home(&mut self) -> Outcome {
        self.ring();
        for worker in &mut self.0 {
            if !worker.process.wait()?.success() {
                return Err(worker.last_words().into());
            }
        }
        Ok(())
    }

    /// The bell: closes the stdin of all workers.
    fn ring(&mut self) {
        for worker in &mut self.0 {
            worker.process.stdin = None;
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.ring();
        for worker in &mut self.0 {
            let _ = worker.process.wait();
        }
    }
}

impl Worker {
    fn start(name: String, prefix: &str, record: &Record) -> io::Result<Worker> {
        let process = Command::new(env::current_exe()?)
            .args(["worker", &name, prefix])
            .stdin(Stdio::piped())
            .stdout(record.as_stdout()?)
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Worker { name, process })
    }

    /// The reason why the worker ended. The text begins with its name.
    fn last_words(&mut self) -> String {
        let mut words = String::new();
        if let Some(stderr) = &mut self.process.stderr {
            let _ = stderr.read_to_string(&mut words);
        }
        match words.trim() {
            "" => format!("{} ended without an error message", self.name),
            words => words.to_owned(),
        }
    }
}
