//! The program `limits` of a language, which does what it is told and says what came of it.

use super::language::Language;
use crate::support::{SOON, Server};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// What an answer may take: a virtual machine starts slowly where others are busy.
const BOUND: Duration = SOON.saturating_mul(3);

pub struct Caller {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

impl Caller {
    pub fn new(language: &Language, server: &Server) -> Caller {
        Caller::at(language, &server.url, server)
    }

    /// One that reaches the server at this URL.
    pub fn at(language: &Language, url: &str, server: &Server) -> Caller {
        let mut command = language.run("limits", &[url, &server.prefix]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (said, answers) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| said.send(line)));
        Caller { child, stdin, answers }
    }

    pub fn ask(&mut self, what: &str) {
        writeln!(self.stdin, "{what}").unwrap();
    }

    #[track_caller]
    pub fn answer(&mut self) -> String {
        self.answers.recv_timeout(BOUND).expect("an answer")
    }

    #[track_caller]
    pub fn call(&mut self, what: &str) -> String {
        self.ask(what);
        self.answer()
    }

    /// The fences of what it is granted.
    #[track_caller]
    pub fn is_granted(&mut self, what: &str) -> Vec<u64> {
        let answer = self.call(what);
        fences(&answer)
    }
}

/// The fences in an answer that says what is held.
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
