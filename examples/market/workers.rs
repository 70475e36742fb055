//! The worker processes: starts, kills and stops them.

use crate::Outcome;
use crate::record::{Event, Record, What};
use std::env;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};

/// The running workers. They end when this value is dropped.
pub struct Workers(Vec<Worker>);

struct Worker {
    name: String,
    process: Child,
}

impl Workers {
    /// Starts `size` workers, named `worker-1` and so on.
    pub fn start(size: usize, prefix: &str, record: &Record) -> io::Result<Workers> {
        let mut workers = Workers(Vec::new());
        for number in 1..=size {
            workers.0.push(Worker::start(format!("worker-{number}"), prefix, record)?);
        }
        Ok(workers)
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
                return Err(worker.last_line().into());
            }
        }
        Ok(())
    }

    /// Closes the stdin of all workers, and waits until they have ended.
    pub fn finish(&mut self) -> Outcome {
        self.close_inputs();
        for worker in &mut self.0 {
            if !worker.process.wait()?.success() {
                return Err(worker.last_line().into());
            }
        }
        Ok(())
    }

    /// Closes the stdin of all workers: they finish their work and end.
    fn close_inputs(&mut self) {
        for worker in &mut self.0 {
            worker.process.stdin = None;
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.close_inputs();
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
    fn last_line(&mut self) -> String {
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
