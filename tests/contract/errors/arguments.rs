//! Errors of arguments. Most are found without a call to the server.

use super::Printed;
use crate::support::{Server, eventually};

use luagate::admin;
use luagate::autocomplete::Recent;
use luagate::{Gate, Lease, Ticket};
use std::time::Duration;

const SHORT: Duration = Duration::from_micros(1);
const LONG: Duration = Duration::from_secs(101 * 366 * 86_400);

pub(super) fn print(printed: &mut Printed) {
    let server = Server::any();
    let gate = server.gate();
    names(printed, &gate);
    numbers(printed, &gate);
    several(printed, &gate, &server.gate());
    a_second_wait(printed, &gate);
    let mut two = gate.semaphore("two", 3).try_acquire_many(2).unwrap();
    printed.error(two.release_some(0));
    printed.error(two.release_some(2));
    two.release().unwrap();
    printed.call(gate.stored_semaphore("stored").available_permits());
    let recent = Recent::new(&gate, "user");
    recent.add(b"\xff").unwrap();
    printed.call(recent.matching("", 10));
}

fn names(printed: &mut Printed, gate: &Gate) {
    let long = "x".repeat(201);
    for name in ["", "a b", "a{b", "{a}b", "{}:a", "{a}:", &long] {
        printed.error(gate.semaphore(name, 1).try_acquire());
        printed.error(gate.mutex(name).lock());
    }
    for id in ["", "a b", &long] {
        printed.error(gate.semaphore("ids", 1).id(id).try_acquire());
        printed.error(gate.semaphore("ids", 1).adopt(id));
    }
}

fn numbers(printed: &mut Printed, gate: &Gate) {
    let semaphore = gate.semaphore("numbers", 3);
    printed.error(gate.semaphore("numbers", 0).try_acquire());
    printed.call(semaphore.resize(0));
    printed.call(semaphore.resize(u32::MAX)); // the script refuses it
    printed.call(admin::inspect_page(&semaphore, 0, 1_001));
    printed.error(semaphore.try_acquire_many(0));
    for lease in [SHORT, LONG] {
        printed.error(semaphore.clone().lease(Lease::fixed(lease)).try_acquire());
        printed.error(semaphore.clone().at_least(lease).try_acquire());
    }
    printed.error(semaphore.clone().lease(Lease::renewed(Duration::from_millis(1))).try_acquire());
    printed.error(semaphore.clone().max_waiting(0).acquire());
    printed.error(semaphore.clone().head_start(Duration::from_secs(90_000)).acquire());
    printed.text("seven".parse::<Ticket>().unwrap_err());
    printed.error(gate.latch("latch", 0).wait());
    printed.error(gate.latch("latch", 1).life(SHORT).wait());
}

fn several(printed: &mut Printed, gate: &Gate, other: &Gate) {
    let a = gate.semaphore("{s}:a", 1);
    let none: [&str; 0] = [];
    printed.error(gate.mutexes(none).try_acquire());
    printed.error(gate.mutexes(["a", "a"]).try_acquire());
    printed.error(gate.mutexes(["a", "b"]).try_acquire());
    printed.error(gate.several([(&a, 1), (&other.semaphore("{s}:b", 1), 1)]).try_acquire());
    printed.error(gate.several([(&a, 0)]).try_acquire());
    printed.error(gate.several([(&a.clone().id("id"), 1)]).try_acquire());
    printed.error(gate.several([(&a.clone().ticket("7".parse::<Ticket>().unwrap()), 1)]).try_acquire());
}

fn a_second_wait(printed: &mut Printed, gate: &Gate) {
    let semaphore = gate.semaphore("waits", 1);
    let held = semaphore.try_acquire().unwrap();
    let own = semaphore.clone().id("own");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| own.acquire_timeout(Duration::from_secs(30)));
        eventually("it waits", || (own.inspect().unwrap().waiter_count == 1).then_some(()));
        printed.error(own.acquire_timeout(Duration::from_secs(1)));
        held.release().unwrap();
        first.join().unwrap().unwrap().release().unwrap();
    });
}
