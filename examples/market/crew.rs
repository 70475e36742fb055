//! The worker processes: started, killed, and sent home.

use crate::Outcome;
use crate::record::{Event, Record, What};
use std::env;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};

/// Those that live. However the day ends, they end with it.
pub struct Crew(Vec<Worker>);

struct Worker {
    name: String,
    process: Child,
}

impl Crew {
    /// Starts `worker-1` and so on.
    pub fn start(size: usize, prefix: &str, record: &Record) -> io::Result<Crew> {
        let mut crew = Crew(Vec::new());
        for number in 1..=size {
            crew.0.push(Worker::start(format!("worker-{number}"), prefix, record)?);
        }
        Ok(crew)
    }

    /// Kills this one with SIGKILL, and returns once it is dead.
    pub fn kill(&mut self, name: &str, record: &Record) -> Outcome<Event> {
        let at = self.0.iter().position(|worker| worker.name == name);
        let at = at.ok_or_else(|| format!("{name} is no living worker"))?;
        let mut worker = self.0.swap_remove(at);
        worker.process.kill()?;
        worker.process.wait()?;
        let death = Event::now(name, What::Killed);
        record.append(&death)?;
        Ok(death)
    }

    /// An error if one has ended by itself, which none does before the bell.
    pub fn check(&mut self) -> Outcome {
        for worker in &mut self.0 {
            if worker.process.try_wait()?.is_some() {
                return Err(worker.last_words().into());
            }
        }
        Ok(())
    }

    /// Rings the bell, and waits until all have left.
    pub fn send_home(&mut self) -> Outcome {
        self.ring();
        for worker in &mut self.0 {
            if !worker.process.wait()?.success() {
                return Err(worker.last_words().into());
            }
        }
        Ok(())
    }

    /// The bell is the end of their stdin.
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

    /// Why it ended; it begins with its name.
    fn last_words(&mut self) -> String {
        let mut words = String::new();
        if let Some(stderr) = &mut self.process.stderr {
            let _ = stderr.read_to_string(&mut words);
        }
        match words.trim() {
            "" => format!("{} ended without a word", self.name),
            words => words.to_owned(),
        }
    }
}
