//! Processes in all languages that take turns on one semaphore.

use super::language::Language;
use super::worker::NAME;
use crate::support::{SOON, process, signal, within};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A virtual machine starts slowly where others are busy, and a lease of who was killed has to end.
const BOUND: Duration = SOON.saturating_mul(6);

/// What a process has told.
#[derive(Default)]
struct Told {
    served: AtomicU32,
    is_finished: AtomicBool,
    errors: Mutex<Vec<String>>,
}

pub struct Member {
    language: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    told: Arc<Told>,
}

pub struct Team {
    url: String,
    prefix: String,
    languages: Vec<Language>,
    members: Vec<Member>,
    started: u32,
}

pub const RUST: &str = "rust";

impl Team {
    /// So many processes of each language, and of Rust. Returns when each was served.
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
        team.goes_on(1);
        team
    }

    /// The languages that take part.
    pub fn names(&self) -> Vec<&'static str> {
        let names = self.languages.iter().map(|language| language.name);
        std::iter::once(RUST).chain(names).collect()
    }

    fn join(&mut self, language: &'static str) {
        self.started += 1;
        let seed = self.started.to_string();
        let arguments = [&*self.url, &self.prefix, &seed];
        let other = self.languages.iter().find(|other| other.name == language);
        let command = match other {
            Some(other) => other.run("worker", &arguments),
            None => process(NAME, &arguments),
        };
        self.members.push(Member::start(language, command));
    }

    /// Waits until everybody was served so many times more.
    pub fn goes_on(&self, times: u32) {
        let before: Vec<u32> = self.members.iter().map(Member::served).collect();
        for (member, before) in self.members.iter().zip(before) {
            let served = within(BOUND, || (member.served() >= before + times).then_some(()));
            assert!(served.is_some(), "{} does not go on: {}", member.language, member.errors());
        }
    }

    /// Ends one of them in the middle of what it does; another of its language takes its place.
    pub fn kill(&mut self, place: usize) {
        let place = place % self.members.len();
        let mut member = self.members.remove(place);
        signal("-KILL", member.child.id());
        member.child.wait().unwrap();
        self.join(member.language);
    }

    /// Everybody is served twice more, and ends well.
    pub fn finish(mut self) {
        self.goes_on(2);
        self.members.iter_mut().for_each(Member::is_told_to_end);
        self.members.iter_mut().for_each(Member::ends);
    }
}

impl Member {
    pub fn start(language: &'static str, mut command: Command) -> Member {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = Arc::new(Told::default());
        let tell = told.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                match line.split_once(' ').unwrap_or((&line, "")) {
                    ("served", _) => drop(tell.served.fetch_add(1, Ordering::SeqCst)),
                    ("finished", _) => tell.is_finished.store(true, Ordering::SeqCst),
                    ("error", what) => tell.errors.lock().unwrap().push(what.to_owned()),
                    _ => {}
                }
            }
        });
        Member { language, child, stdin, told }
    }

    /// The stay that it is in, or that it waits for, is its last one.
    pub fn is_told_to_end(&mut self) {
        drop(self.stdin.take());
    }

    /// Waits until it has ended, and well.
    pub fn ends(&mut self) {
        let language = self.language;
        let finished = within(BOUND, || self.told.is_finished.load(Ordering::SeqCst).then_some(()));
        assert!(finished.is_some(), "{language} does not end: {}", self.errors());
        assert!(self.child.wait().unwrap().success(), "{language}: {}", self.errors());
    }

    fn served(&self) -> u32 {
        self.told.served.load(Ordering::SeqCst)
    }

    fn errors(&self) -> String {
        self.told.errors.lock().unwrap().join("\n")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
