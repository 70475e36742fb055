//! Promise: the examples in `examples/python` and `examples/javascript` keep their limits over all their
//! processes.

use super::language::{Language, ROOT};
use crate::server;
use crate::support::leftovers::{MARK, mark};
use crate::support::service::{LONGEST, Request, Service, assert_five_are_sent, decided, lines_of};
use crate::support::{Server, signal, within};
use libtest_mimic::Failed;
use luagate::{Gate, Semaphore};
use std::io::pipe;
use std::process::{Child, Command};
use std::time::Duration;
use tempfile::TempDir;

type Test = fn(&Web) -> Result<(), Failed>;

/// The tests of each web service.
const WEB: [(&str, Test); 4] = [
    ("limits_a_route_over_two_processes", limit),
    ("holds_a_permit_until_the_body_has_ended_or_the_client_has_gone", ends),
    ("ends_a_response_whose_permit_is_lost", lost),
    ("stops_after_the_requests_that_it_has", stopped),
];

const CELERY: (&str, fn() -> Result<(), Failed>) = ("limits_a_task_over_two_workers", celery);

/// Longer than a test takes.
const ENDLESS: Duration = Duration::from_secs(600);

const REPORT: &str = "/report";

/// A web service, and the folder that its processes run in.
struct Web {
    name: &'static str,
    folder: TempDir,
}

/// A program in the folder of packages that the tests of Python have installed.
fn python(program: &str) -> Command {
    let mut command = Command::new(format!("{ROOT}/tests/languages/python/.venv-examples/bin/{program}"));
    command
        .current_dir(format!("{ROOT}/examples/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env(MARK, mark());
    command
}

impl Web {
    const ALL: [(&str, &str); 2] = [("fastapi", "python"), ("express", "javascript")];

    /// An ES module finds packages only in a folder `node_modules` next to it or above it.
    fn new(name: &'static str) -> Result<Web, Failed> {
        let folder = tempfile::tempdir()?;
        std::fs::copy(
            format!("{ROOT}/examples/javascript/express_limit.mjs"),
            folder.path().join("express_limit.mjs"),
        )?;
        let packages =
            std::fs::canonicalize(format!("{ROOT}/tests/languages/javascript"))?.join("node_modules");
        std::os::unix::fs::symlink(packages, folder.path().join("node_modules"))?;
        Ok(Web { name, folder })
    }

    /// Starts a process whose work takes this time for each of ten rows.
    fn start(&self, server: &Server, work: Duration, wait: Duration) -> Service {
        let mut command = if self.name == "fastapi" {
            let mut command = python("uvicorn");
            command.args(["fastapi_limit:app", "--port", "0"]);
            command
                .env("WORK_S", work.as_secs_f64().to_string())
                .env("WAIT_S", wait.as_secs_f64().to_string());
            command
        } else {
            let mut command = Command::new("node");
            command.arg("express_limit.mjs").current_dir(self.folder.path()).env("PORT", "0");
            command.env("WORK_MS", work.as_millis().to_string()).env("WAIT_MS", wait.as_millis().to_string());
            command
        };
        command.env("REDIS_URL", &server.url);
        Service::start(command)
    }
}

/// The semaphore of the services.
fn reports(server: &Server) -> Result<Semaphore, Failed> {
    Ok(Gate::open(&server.url)?.semaphore("report", 5))
}

#[track_caller]
fn has(semaphore: &Semaphore, in_use: u32, waiting: u64) {
    let mut seen = None;
    let found = within(LONGEST, || {
        let now = semaphore.inspect().unwrap();
        seen = Some((now.in_use, now.waiter_count));
        (seen == Some((in_use, waiting))).then_some(())
    });
    assert!(found.is_some(), "{in_use} in use and {waiting} waiting, but {seen:?}");
}

fn limit(web: &Web) -> Result<(), Failed> {
    let server = server();
    let services = [(); 2].map(|()| web.start(&server, ENDLESS, Duration::from_secs(3)));
    let mut requests = [0, 1, 0, 1, 0, 1, 0, 1].map(|service| services[service].send(REPORT));
    assert_five_are_sent(&mut requests, || services[0].send(REPORT));
    has(&reports(&server)?, 5, 0); // the heads have come, and the bodies have not
    let other = services[0].send("/health").answer();
    assert_eq!(other.status(), 200, "{other:?}");
    let next = decided(&mut services[0].send(REPORT), || services[0].send(REPORT));
    assert_eq!((next.status(), next.retry_after()), (429, Some(1_200)), "{next:?}"); // 6,000 s of work by 5
    Ok(())
}

fn ends(web: &Web) -> Result<(), Failed> {
    let server = server();
    let reports = reports(&server)?;
    let (slow, quick) =
        (web.start(&server, ENDLESS, LONGEST), web.start(&server, Duration::from_millis(1), LONGEST));
    let mut active = [(); 5].map(|()| slow.send(REPORT));
    active.iter_mut().for_each(|request| assert_eq!(request.head().status(), 200));
    has(&reports, 5, 0);
    let waiting = [(); 3].map(|()| quick.send(REPORT));
    has(&reports, 5, 3);
    let [first, others @ ..] = active;
    drop(first); // its client has gone
    for answer in waiting.map(Request::answer) {
        assert!(answer.status() == 200 && answer.is_complete() && answer.0.contains("row 10"), "{answer:?}");
    }
    has(&reports, 4, 0); // the bodies of the three have ended
    drop(others);
    has(&reports, 0, 0);
    Ok(())
}

fn lost(web: &Web) -> Result<(), Failed> {
    let mut server = server();
    let reports = reports(&server)?;
    let service = web.start(&server, ENDLESS, Duration::from_secs(2));
    let mut request = service.send(REPORT);
    assert_eq!(request.head().status(), 200);
    let holder = reports.inspect()?.holders.remove(0);
    assert!(reports.revoke(&holder.id).is_ok());
    let rest = request.answer();
    assert!(!rest.is_complete(), "{rest:?}");

    server.kill(); // without it, no permit is granted, and other routes work
    let answer = service.send(REPORT).answer();
    assert_eq!(answer.status(), 503, "{answer:?}");
    assert!(!answer.0.to_lowercase().contains("redis"), "the client sees details: {answer:?}");
    assert_eq!(service.send("/health").answer().status(), 200);
    Ok(())
}

fn stopped(web: &Web) -> Result<(), Failed> {
    let server = server();
    let mut service = web.start(&server, Duration::from_millis(200), LONGEST);
    let mut request = service.send(REPORT);
    assert_eq!(request.head().status(), 200);
    signal("-TERM", service.id());
    let answer = request.answer();
    assert!(answer.is_complete() && answer.0.contains("row 10"), "{answer:?}");
    service.ends();
    has(&reports(&server)?, 0, 0);
    Ok(())
}

/// Workers of Celery that write to one pipe. They are ended with the test.
struct Workers(Vec<Child>);

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill(); // its processes end when they notice it
            let _ = worker.wait();
        }
    }
}

/// Puts tasks into the queue.
fn send(server: &Server, count: u32) -> Result<(), Failed> {
    let code =
        format!("import celery_limit\nfor number in range({count}): celery_limit.export.delay(number)");
    let sent = python("python").args(["-c", &code]).env("REDIS_URL", &server.url).output()?;
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    Ok(())
}

fn celery() -> Result<(), Failed> {
    const TASKS: u32 = 12;
    let server = server();
    let (reader, writer) = pipe()?;
    let mut workers = Workers(Vec::new());
    for name in ["one", "two"] {
        let mut worker = python("celery");
        worker.args([
            "-A",
            "celery_limit",
            "worker",
            "--concurrency",
            "4",
            "--loglevel",
            "INFO",
            "--hostname",
            name,
        ]);
        worker
            .env("REDIS_URL", &server.url)
            .env("WORK_S", "0.5")
            .stdout(writer.try_clone()?)
            .stderr(writer.try_clone()?);
        workers.0.push(worker.spawn()?);
    }
    drop(writer);
    let (lines, mut log) = (lines_of(reader), String::new());
    let mut next = || {
        let line = lines.recv_timeout(LONGEST).map_err(|why| format!("no line: {why}:\n{log}"))?;
        log += &format!("{line}\n");
        Ok::<_, Failed>(line)
    };
    send(&server, TASKS)?;
    let (mut begun, mut ended) = (0, 0);
    while ended < TASKS {
        let line = next()?;
        begun += u32::from(line.contains(" begins"));
        ended += u32::from(line.contains(" ends"));
        assert!(begun - ended <= 3, "{} tasks at a time", begun - ended);
    }
    // A task without a permit goes back to the queue.
    let exports = Gate::open(&server.url)?.semaphore("exports", 3);
    has(&exports, 0, 0);
    let held = exports.try_acquire_available()?;
    send(&server, 1)?;
    while !next()?.contains("Retry in") {}
    held.release()?;
    while !next()?.contains(" ends") {}
    workers.0.iter().for_each(|worker| signal("-TERM", worker.id()));
    for worker in &mut workers.0 {
        let ended = within(LONGEST, || worker.try_wait().unwrap());
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}:\n{log}");
    }
    has(&exports, 0, 0);
    Ok(())
}

/// A test: its name, the reason why it cannot run on this machine, and its code.
type Case = (String, Option<String>, Box<dyn FnOnce() -> Result<(), Failed> + Send>);

pub fn cases(languages: &[Language]) -> Vec<Case> {
    let missing = |name: &str| {
        languages.iter().find(|language| language.name == name).and_then(|it| it.missing.clone())
    };
    let (name, test) = CELERY;
    let mut cases: Vec<Case> = vec![(format!("examples::celery::{name}"), missing("python"), Box::new(test))];
    for (web, language) in Web::ALL {
        for (name, test) in WEB {
            let name = format!("examples::{web}::{name}");
            cases.push((name, missing(language), Box::new(move || test(&Web::new(web)?))));
        }
    }
    cases
}
