//! Promise: the examples `nightly_job`, `worker_pool` and `llm_calls` keep their limits over all their
//! processes.

use crate::examples::path_of;
use crate::own;
use crate::support::leftovers::{MARK, mark};
use crate::support::service::{LONGEST, lines_of};
use crate::support::{Server, eventually, signal};

use luagate::{Gate, Semaphore};
use std::collections::BTreeMap;
use std::io::{PipeWriter, Write, pipe};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// Longer than a test takes, in milliseconds.
const ENDLESS: &str = "600000";

/// Processes that write to one pipe. So the order of their lines is the order in which they were written.
struct Programs {
    url: String,
    lines: Receiver<String>,
    writer: Option<PipeWriter>,
    started: Vec<Child>,
}

impl Programs {
    fn new(server: &Server) -> Programs {
        let (reader, writer) = pipe().unwrap();
        Programs {
            url: server.url.clone(),
            lines: lines_of(reader),
            writer: Some(writer),
            started: Vec::new(),
        }
    }

    /// Starts an example with these lines as its input.
    fn start(&mut self, example: &str, arguments: &[&str], settings: &[(&str, &str)], input: &[String]) {
        let output = self.writer.as_ref().unwrap();
        let mut command = Command::new(path_of(example));
        command.args(arguments).env("REDIS_URL", &self.url).env(MARK, mark()).envs(settings.iter().copied());
        command.stdin(Stdio::piped()).stdout(output.try_clone().unwrap()).stderr(output.try_clone().unwrap());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        self.started.push(child);
        // A program that reads nothing may end before its input is written.
        let _ = input.iter().try_for_each(|line| writeln!(stdin, "{line}"));
    }

    /// The next line of any process.
    #[track_caller]
    fn line(&mut self) -> String {
        self.lines.recv_timeout(LONGEST).expect("a line")
    }

    /// All further lines, and the statuses. The processes end without help.
    #[track_caller]
    fn end(mut self) -> (Vec<String>, Vec<ExitStatus>) {
        self.writer = None;
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(LONGEST) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("still running after {lines:?}"),
            }
        }
        let ended = |child: &mut Child| eventually("the process ends", || child.try_wait().unwrap());
        (lines, self.started.iter_mut().map(ended).collect())
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for child in &mut self.started {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The highest number of works that were active at the same time.
fn most<'a>(lines: impl Iterator<Item = &'a String>) -> usize {
    let (mut active, mut most) = (0, 0);
    for line in lines {
        active += usize::from(line.contains("begins: "));
        active -= usize::from(line.contains("ends: "));
        most = most.max(active);
    }
    most
}

fn count(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn nightly_job_runs_once_also_if_a_host_starts_it_late() {
    let server = own!(Server::private(&[]));
    let mut hosts = Programs::new(&server);
    for _ in 0..3 {
        hosts.start("nightly_job", &["report"], &[], &[]);
    }
    let (lines, statuses) = hosts.end();
    assert!(statuses.iter().all(ExitStatus::success), "{lines:?}");
    let mut late = Programs::new(&server);
    late.start("nightly_job", &["report"], &[], &[]);
    late.start("nightly_job", &["backup"], &[], &[]);
    let (later, statuses) = late.end();
    assert!(statuses.iter().all(ExitStatus::success), "{later:?}");
    let lines = [lines, later].concat();
    assert_eq!(count(&lines, "report: runs on this host"), 1, "{lines:?}");
    assert_eq!(count(&lines, "report: done"), 1, "{lines:?}");
    assert_eq!(count(&lines, "report: runs on another host, or ran there tonight"), 3, "{lines:?}");
    assert_eq!(count(&lines, "backup: done"), 1, "{lines:?}");
}

#[test]
fn nightly_job_that_lost_its_lock_stops_and_fails() {
    let server = own!(Server::private(&[]));
    let mut hosts = Programs::new(&server);
    hosts.start("nightly_job", &["report"], &[("STEP_MS", "1500")], &[]);
    assert_eq!(hosts.line(), "report: runs on this host");
    let mutex = Gate::open(&server.url).unwrap().mutex("nightly:report");
    let holder = mutex.inspect().unwrap().holders.remove(0);
    mutex.revoke(&holder.id).unwrap();
    let (lines, statuses) = hosts.end();
    assert_eq!(statuses[0].code(), Some(1), "{lines:?}");
    assert_eq!(count(&lines, "the lock was lost before step"), 1, "{lines:?}");
    assert_eq!(count(&lines, "done"), 0, "{lines:?}");
}

/// Each customer has this number of jobs.
fn jobs(customers: u32, each: u32) -> Vec<String> {
    (0..customers * each).map(|job| format!("customer-{} job-{job}", job % customers)).collect()
}

fn customer(line: &str) -> &str {
    line.split(' ').nth(1).unwrap()
}

#[test]
fn worker_pool_runs_three_jobs_of_a_customer_and_a_hundred_in_total() {
    let server = own!(Server::private(&[]));
    let mut pool = Programs::new(&server);
    for half in jobs(40, 4).chunks(80) {
        pool.start("worker_pool", &[], &[("JOB_MS", ENDLESS)], half);
    }
    let mut running: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..100 {
        *running.entry(customer(&pool.line()).to_owned()).or_default() += 1;
    }
    assert!(running.values().all(|count| *count <= 3), "{running:?}");
    let total = Gate::open(&server.url).unwrap().semaphore("export:total", 100);
    // Each customer with fewer than three jobs in work has the others in the line for the total: 20 of 120 in
    // all.
    eventually("20 jobs wait for the total", || (total.inspect().unwrap().waiter_count == 20).then_some(()));
    assert_eq!(total.inspect().unwrap().in_use, 100);
}

#[test]
fn worker_pool_does_all_jobs() {
    let server = own!(Server::private(&[]));
    let mut pool = Programs::new(&server);
    let all = jobs(5, 12);
    for third in all.chunks(20) {
        pool.start("worker_pool", &[], &[("JOB_MS", "50")], third);
    }
    let (lines, statuses) = pool.end();
    assert!(statuses.iter().all(ExitStatus::success), "{lines:?}");
    for job in &all {
        assert!(lines.contains(&format!("ends: {job}")), "{job} was not done: {lines:?}");
    }
    assert_eq!(count(&lines, "ends: "), all.len(), "{lines:?}");
    for number in 0..5 {
        let name = format!("customer-{number}");
        let most = most(lines.iter().filter(|line| customer(line) == name));
        assert!(most <= 3, "{most} at a time: {lines:?}");
    }
}

#[test]
fn worker_pool_that_was_told_to_stop_ends_its_jobs_and_names_those_that_it_has_not_done() {
    let server = own!(Server::private(&[]));
    let mut pool = Programs::new(&server);
    pool.start("worker_pool", &[], &[("JOB_MS", "1000")], &jobs(1, 5));
    let begun = [(); 3].map(|()| pool.line().replace("begins", "ends"));
    let gate = Gate::open(&server.url).unwrap();
    let (one, total) = (gate.semaphore("export:customer:customer-0", 3), gate.semaphore("export:total", 100));
    eventually("two jobs wait", || (one.inspect().unwrap().waiter_count == 2).then_some(()));
    signal("-TERM", pool.started[0].id());
    let (lines, statuses) = pool.end();
    assert!(begun.iter().all(|line| lines.contains(line)), "{lines:?}");
    assert_eq!((count(&lines, "ends: "), count(&lines, "not done: customer-0 job-")), (3, 2), "{lines:?}");
    assert_eq!(statuses[0].code(), Some(1), "{lines:?}");
    for semaphore in [one, total] {
        let state = semaphore.inspect().unwrap();
        assert_eq!((state.in_use, state.waiter_count), (0, 0), "{state}");
    }
}

fn prompts(kind: &str, count: u32) -> Vec<String> {
    (0..count).map(|number| format!("{kind} {number}")).collect()
}

fn wait_for(semaphore: &Semaphore, waiters: u64) {
    eventually("the line", || (semaphore.inspect().unwrap().waiter_count == waiters).then_some(()));
}

#[test]
fn llm_calls_of_users_go_before_those_of_batches_and_at_most_eight_run() {
    let server = own!(Server::private(&[]));
    let calls = Gate::open(&server.url).unwrap().semaphore("model:calls", 8);
    let busy = calls.acquire_many(8).unwrap();
    let mut programs = Programs::new(&server);
    for _ in 0..2 {
        programs.start("llm_calls", &["batch"], &[("CALL_MS", "50")], &prompts("batch", 10));
    }
    wait_for(&calls, 20);
    programs.start("llm_calls", &["user"], &[("CALL_MS", "50")], &prompts("user", 4));
    wait_for(&calls, 24);
    busy.release().unwrap();
    let (lines, statuses) = programs.end();
    assert!(statuses.iter().all(ExitStatus::success), "{lines:?}");
    assert!(most(lines.iter()) <= 8, "{lines:?}");
    assert_eq!(count(&lines, "the answer to"), 24, "{lines:?}");
    // Fences are the order of the grants.
    let fences = |kind: &str| -> Vec<u64> {
        let begun = lines.iter().filter(|line| line.contains(&format!("begins: {kind}")));
        begun.map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect()
    };
    let (users, batches) = (fences("user"), fences("batch"));
    assert_eq!((users.len(), batches.len()), (4, 20), "{lines:?}");
    assert!(users.iter().max() < batches.iter().min(), "users {users:?}, batches {batches:?}");
}

#[test]
fn llm_calls_that_are_interrupted_leave_nothing() {
    let server = own!(Server::private(&[]));
    let calls = Gate::open(&server.url).unwrap().semaphore("model:calls", 8);
    let mut programs = Programs::new(&server);
    programs.start("llm_calls", &["batch"], &[("CALL_MS", ENDLESS)], &prompts("batch", 10));
    wait_for(&calls, 2);
    assert_eq!(calls.inspect().unwrap().in_use, 8);
    signal("-INT", programs.started[0].id());
    programs.end();
    let state = calls.inspect().unwrap();
    assert_eq!((state.in_use, state.waiter_count), (0, 0), "{state}");
}
