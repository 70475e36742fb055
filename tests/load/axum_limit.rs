//! Promise: the example `axum_limit` works on five reports at a time, over all its instances. A permit is
//! held until the body of the response has ended, and a client that disconnects leaves nothing behind.

use crate::examples::path_of;
use crate::own;
use crate::support::proxy::Proxy;
use crate::support::service::{Request, Service, assert_five_are_sent};
use crate::support::{Server, eventually, signal};

use luagate::{Gate, Semaphore};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longer than a test takes, in milliseconds.
const ENDLESS: &str = "600000";

/// One process of the example. The settings are pairs of a name and a value.
fn start(url: &str, settings: &[(&str, &str)]) -> Service {
    let mut command = Command::new(path_of("axum_limit"));
    command.arg("127.0.0.1:0").env("REDIS_URL", url).envs(settings.iter().copied());
    Service::start(command)
}

/// The semaphore of the example.
fn reports(server: &Server) -> Semaphore {
    Gate::open(&server.url).unwrap().semaphore("report", 5)
}

#[track_caller]
fn has(reports: &Semaphore, in_use: u32, waiting: u64) {
    let mut seen = None;
    eventually(&format!("{in_use} in use and {waiting} waiting"), || {
        let now = reports.inspect().unwrap();
        seen = Some((now.in_use, now.waiter_count));
        (seen == Some((in_use, waiting))).then_some(())
    });
}

/// Requests that hold all five permits.
fn busy(instance: &Service, reports: &Semaphore) -> Vec<Request> {
    let requests = [(); 5].map(|()| instance.send(REPORT));
    has(reports, 5, 0);
    Vec::from(requests)
}

const REPORT: &str = "/report";

/// A response whose body does not end.
const ENDLESS_BODY: [(&str, &str); 2] = [("WORK_MS", "0"), ("ROW_MS", ENDLESS)];

/// A response that does not begin.
const ENDLESS_WORK: [(&str, &str); 1] = [("WORK_MS", ENDLESS)];

#[test]
fn two_instances_send_five_responses_at_a_time_and_the_others_get_429_with_a_retry_time() {
    let server = own!(Server::private(&[]));
    let instances = [(); 2].map(|()| start(&server.url, &ENDLESS_BODY));
    let mut requests = [0, 1, 0, 1, 0, 1, 0, 1].map(|instance| instances[instance].send(REPORT));
    assert_five_are_sent(&mut requests, || instances[0].send(REPORT));
    has(&reports(&server), 5, 0); // the heads have come, and the bodies have not
    let other = instances[0].send("/health").answer();
    assert_eq!(other.status(), 200, "{other:?}");
}

#[test]
fn a_permit_is_released_when_the_body_has_ended() {
    let server = own!(Server::private(&[]));
    let instance = start(&server.url, &[("WORK_MS", "0"), ("ROW_MS", "1")]);
    let answer = instance.send(REPORT).answer();
    assert!(answer.is_complete() && answer.0.contains("row 10"), "{answer:?}");
    has(&reports(&server), 0, 0);
}

#[test]
fn a_request_in_line_is_served_when_a_request_of_another_instance_ends() {
    let server = own!(Server::private(&[]));
    let slow = start(&server.url, &ENDLESS_BODY);
    let quick = start(&server.url, &[("WORK_MS", "0"), ("ROW_MS", "0"), ("WAIT_MS", ENDLESS)]);
    let reports = reports(&server);
    let mut active = busy(&slow, &reports);
    let waiting = [(); 3].map(|()| quick.send(REPORT));
    has(&reports, 5, 3);
    drop(active.pop());
    for answer in waiting.map(Request::answer) {
        assert_eq!(answer.status(), 200, "{answer:?}");
        assert!(answer.is_complete(), "{answer:?}");
    }
    has(&reports, 4, 0);
}

#[test]
fn a_request_that_waited_for_two_seconds_gets_429() {
    let server = own!(Server::private(&[]));
    let instance = start(&server.url, &ENDLESS_WORK);
    let reports = reports(&server);
    let _active = busy(&instance, &reports);
    let start = Instant::now();
    let answer = instance.send(REPORT).answer();
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(answer.status(), 429, "{answer:?}");
    assert_eq!(answer.retry_after(), Some(121), "{answer:?}"); // 600.5 s of work by 5, rounded up
    has(&reports, 5, 0);
}

#[test]
fn a_client_that_disconnects_leaves_no_waiter_and_no_permit() {
    let server = own!(Server::private(&[]));
    for settings in [ENDLESS_WORK.as_slice(), &ENDLESS_BODY] {
        let instance = start(&server.url, &[settings, &[("WAIT_MS", ENDLESS)]].concat());
        let reports = reports(&server);
        let active = busy(&instance, &reports);
        let waiting = [(); 4].map(|()| instance.send(REPORT));
        has(&reports, 5, 4);
        drop(waiting);
        has(&reports, 5, 0);
        drop(active);
        has(&reports, 0, 0);
    }
}

#[test]
fn a_lost_permit_ends_the_response() {
    let server = own!(Server::private(&[]));
    let reports = reports(&server);
    let revoke_all = || {
        for holder in reports.inspect().unwrap().holders {
            reports.revoke(&holder.id).unwrap();
        }
    };
    let mut instance = start(&server.url, &ENDLESS_BODY);
    let mut request = instance.send(REPORT);
    assert_eq!(request.head().status(), 200);
    revoke_all();
    let rest = request.answer();
    assert!(!rest.is_complete(), "{rest:?}");

    instance = start(&server.url, &ENDLESS_WORK);
    let request = instance.send(REPORT);
    has(&reports, 1, 0);
    revoke_all();
    let answer = request.answer();
    assert_eq!(answer.status(), 503, "{answer:?}");
}

#[test]
fn without_the_server_of_the_limit_a_request_gets_503_and_other_routes_work() {
    let mut server = own!(Server::private(&[]));
    let instance = start(&server.url, &[]);
    server.kill();
    let answer = instance.send(REPORT).answer();
    assert_eq!(answer.status(), 503, "{answer:?}");
    assert!(!answer.0.contains("redis"), "the client sees details: {answer:?}");
    assert_eq!(instance.send("/health").answer().status(), 200);
}

#[test]
fn a_service_that_was_told_to_stop_ends_when_the_server_has_confirmed_all_releases() {
    let server = own!(Server::private_tcp(&[]));
    let proxy = Proxy::new(&server);
    let mut instance = start(&proxy.url, &ENDLESS_BODY);
    let reports = reports(&server);
    let mut active = busy(&instance, &reports);
    signal("-TERM", instance.id());
    instance.refuses_connections();
    let last = active.pop();
    drop(active);
    has(&reports, 1, 0); // it still works on the last request
    assert!(instance.is_running());
    proxy.go_silent(); // the first release is lost
    drop(last);
    assert!(instance.ends().success());
    assert_eq!(reports.inspect().unwrap().in_use, 0);
}
