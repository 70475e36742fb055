//! The program `limits` of a language: it reads commands and prints their results.

use super::language::Language;
use crate::support::{SOON, Server, within};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The longest time for an answer: a virtual machine starts slowly on a busy machine.
const BOUND: Duration = SOON.saturating_mul(3);

pub struct Caller {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Caller {
    pub fn new(language: &Language, server: &Server) -> Caller {
        Caller::at(language, &server.url, server)
    }

    /// Connects to the server at this URL.
    pub fn at(language: &Language, url: &str, server: &Server) -> Caller {
        let mut command = language.run("limits", &[url, &server.prefix]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, answers) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Caller { child, stdin, answers }
    }

    pub fn ask(&mut self, command: &str) {
        writeln!(self.stdin.as_ref().expect("an open input"), "{command}").unwrap();
    }

    #[track_caller]
    pub fn answer(&mut self) -> String {
        self.answers.recv_timeout(BOUND).expect("an answer")
    }

    #[track_caller]
    pub fn call(&mut self, command: &str) -> String {
        self.ask(command);
        self.answer()
    }

    /// The fences of the granted permits.
    #[track_caller]
    pub fn is_granted(&mut self, command: &str) -> Vec<u64> {
        let answer = self.call(command);
        fences(&answer)
    }

    /// Closes its input. Returns whether it ended within this time.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        drop(self.stdin.take());
        within(time, || self.child.try_wait().unwrap()).is_some()
    }
}

/// The fences in the answer of a grant.
#[track_caller]
pub fn fences(answer: &str) -> Vec<u64> {
    let fences = answer.strip_prefix("held ").unwrap_or_else(|| panic!("not granted: {answer}"));
    fences.split(' ').map(|fence| fence.parse().unwrap()).collect()
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
