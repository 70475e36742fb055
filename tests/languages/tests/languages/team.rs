//! Processes in all languages that share one semaphore.

use super::language::Language;
use crate::support::{SOON, process, signal, within};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A virtual machine starts slowly on a busy machine, and the leases of killed processes must end first.
const BOUND: Duration = SOON.saturating_mul(6);

/// The lines that a process has printed.
#[derive(Default)]
struct Printed {
    served: AtomicU32,
    is_finished: AtomicBool,
    errors: Mutex<Vec<String>>,
}

pub struct Member {
    language: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    printed: Arc<Printed>,
}

pub struct Team {
    url: String,
    prefix: String,
    languages: Vec<Language>,
    members: Vec<Member>,
    started: u32,
}

/// Processes in Rust, with threads and with tasks.
pub const RUST: &str = "rust";
pub const TOKIO: &str = "rust with tokio";

impl Team {
    /// Starts `each` processes of every language, and in Rust of both forms. Returns when each process held
    /// the semaphore once.
    pub fn new(url: &str, prefix: &str, languages: &[Language], each: u32) -> Team {
        let mut team = Team {
            url: url.to_owned(),
            prefix: prefix.to_owned(),
            languages: languages.to_vec(),
            members: Vec::new(),
            started: 0,
        };
        for language in team.names() {
            for _ in 0..each {
                team.join(language);
            }
        }
        team.continues(1);
        team
    }

    /// The languages of the processes.
    pub fn names(&self) -> Vec<&'static str> {
        let names = self.languages.iter().map(|language| language.name);
        [RUST, TOKIO].into_iter().chain(names).collect()
    }

    fn join(&mut self, language: &'static str) {
        self.started += 1;
        let seed = self.started.to_string();
        let arguments = [&*self.url, &self.prefix, &seed];
        let other = self.languages.iter().find(|other| other.name == language);
        let command = match other {
            Some(other) => other.run("worker", &arguments),
            None => process(language, &arguments),
        };
        self.members.push(Member::start(language, command));
    }

    /// Waits until each process held the semaphore this number of times more.
    pub fn continues(&self, times: u32) {
        let before: Vec<u32> = self.members.iter().map(Member::served).collect();
        for (member, before) in self.members.iter().zip(before) {
            let served = within(BOUND, || (member.served() >= before + times).then_some(()));
            assert!(served.is_some(), "{} does not continue: {}", member.language, member.errors());
        }
    }

    /// Kills a process, and starts another one of its language.
    pub fn kill(&mut self, place: usize) {
        let place = place % self.members.len();
        let mut member = self.members.remove(place);
        signal("-KILL", member.child.id());
        member.child.wait().unwrap();
        self.join(member.language);
    }

    /// Each process holds the semaphore twice more, and then ends without an error.
    pub fn finish(mut self) {
        self.continues(2);
        self.members.iter_mut().for_each(Member::close_input);
        self.members.iter_mut().for_each(Member::finishes);
    }
}

impl Member {
    pub fn start(language: &'static str, mut command: Command) -> Member {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let printed = Arc::new(Printed::default());
        let sink = printed.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                match line.split_once(' ').unwrap_or((&line, "")) {
                    ("served", _) => drop(sink.served.fetch_add(1, Ordering::SeqCst)),
                    ("finished", _) => sink.is_finished.store(true, Ordering::SeqCst),
                    ("error", what) => sink.errors.lock().unwrap().push(what.to_owned()),
                    _ => {}
                }
            }
        });
        Member { language, child, stdin, printed }
    }

    /// The process ends after the permits that it holds or waits for.
    pub fn close_input(&mut self) {
        drop(self.stdin.take());
    }

    /// Waits until the process has ended with success.
    pub fn finishes(&mut self) {
        let language = self.language;
        let finished = within(BOUND, || self.printed.is_finished.load(Ordering::SeqCst).then_some(()));
        assert!(finished.is_some(), "{language} does not finish: {}", self.errors());
        assert!(self.child.wait().unwrap().success(), "{language}: {}", self.errors());
    }

    fn served(&self) -> u32 {
        self.printed.served.load(Ordering::SeqCst)
    }

    fn errors(&self) -> String {
        self.printed.errors.lock().unwrap().join("\n")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
