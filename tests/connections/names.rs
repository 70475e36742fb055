//! Promise: a name server that answers late keeps no caller longer than its time limit, and its answer is
//! used. A name that leads to another server is followed.

use crate::support::resolver::{NAME, Resolver};
use crate::support::stub_sentinel::StubSentinel;
use crate::support::{self, SOON, Server, eventually, kill_connections, within};

use futures_executor::block_on;
use luagate::{Gate, GateBuilder, Lease};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(200);

/// The wait of a process for its resolver would end only much later.
const IN_TIME: Duration = Duration::from_secs(5);

/// Runs a case of this file in a process that has the resolver: `run`.
#[track_caller]
fn in_process(case: &str, server: &Server, addresses: &[String]) {
    let resolver = match Resolver::new() {
        Ok(resolver) => resolver,
        Err(why) => return support::skip_since(why),
    };
    let address = server.address().replace("127.0.0.1", NAME);
    let socket = server.socket_url();
    let mut arguments = vec![case, &address, &socket, &server.prefix];
    arguments.extend(addresses.iter().map(String::as_str));
    let output = support::process("names", &arguments).envs(resolver.variables()).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn run(arguments: &[String]) {
    let [case, address, socket, prefix, addresses @ ..] = arguments else { panic!("{arguments:?}") };
    let (names, server) = (Resolver::of_this_process(), Server::at(socket.clone(), prefix.clone()));
    let builder = Gate::builder(&format!("redis://{address}")).prefix(prefix);
    match case.as_str() {
        "limits" => callers_return_at_their_limits(&names, &server, builder),
        "too late" => too_late_an_answer_is_used(&names, &server, builder),
        "late" => late_answers_are_used(&names, &server, addresses),
        "moved" => another_address_is_used(&names, &server, builder),
        other => panic!("unknown case {other}"),
    }
    std::mem::forget(server); // the keys belong to the test that has started this process
}

#[test]
fn callers_return_at_their_limits_while_a_name_is_looked_up() {
    let server = crate::own!(Server::private_tcp(&[]));
    in_process("limits", &server, &[]);
}

fn callers_return_at_their_limits(names: &Resolver, server: &Server, builder: GateBuilder) {
    let con = &mut server.connection();
    let gate = builder.connect_timeout(SHORT * 2).open().unwrap();
    let semaphore = gate.semaphore("s", 5).lease(Lease::fixed(Duration::from_secs(60)));
    let dropped = semaphore.acquire().unwrap();
    names.hold();
    let begun = names.begun();
    kill_connections(con, "normal");
    let calls: [(&str, &dyn Fn() -> bool); 6] = [
        ("acquire_timeout", &|| semaphore.acquire_timeout(SHORT).is_err()),
        ("acquire_timeout_async", &|| block_on(semaphore.acquire_timeout_async(SHORT)).is_err()),
        ("try_acquire", &|| semaphore.try_acquire().is_err()),
        ("try_acquire_async", &|| block_on(semaphore.try_acquire_async()).is_err()),
        ("inspect", &|| semaphore.inspect().is_err()),
        ("inspect_async", &|| block_on(semaphore.inspect_async()).is_err()),
    ];
    for (name, fails) in calls {
        let start = Instant::now();
        assert!(fails(), "{name} cannot connect");
        assert!(start.elapsed() < IN_TIME, "{name} took {:?}", start.elapsed());
    }
    let start = Instant::now();
    drop(dropped);
    assert!(start.elapsed() < IN_TIME);
    assert!(names.begun() > begun, "nothing was looked up");
    names.let_go();
    // Nobody calls any more.
    let other = server.gate().semaphore("s", 5);
    eventually("the dropped permit is released", || (other.inspect().unwrap().in_use == 0).then_some(()));
    semaphore.try_acquire().unwrap().release().unwrap();
}

#[test]
fn a_late_answer_is_used_at_every_kind_of_address() {
    let (server, node) = (crate::own!(Server::private_tcp(&[])), crate::own!(Server::cluster_node()));
    let named = |address: &str| address.replace("127.0.0.1", NAME);
    let by_name = Server::at(named(&server.url), server.prefix.clone());
    let (sentinel, of_name) = (StubSentinel::naming(&server).address, StubSentinel::naming(&by_name).address);
    std::mem::forget(by_name);
    let addresses = [
        format!("redis://{}", named(server.address())),
        format!("redis+cluster://{}", named(node.address())),
        format!("redis+sentinel://{}/orders", named(&sentinel)),
        format!("redis+sentinel://{}/orders", named(&of_name)),
    ];
    in_process("late", &server, &addresses);
}

fn late_answers_are_used(names: &Resolver, server: &Server, addresses: &[String]) {
    names.takes(SHORT * 5);
    for address in addresses {
        let builder =
            || Gate::builder(address).prefix(&server.prefix).connect_timeout(SHORT).read_timeout(SHORT);
        for gate in [builder().open(), block_on(builder().open_async())] {
            let gate = gate.unwrap_or_else(|error| panic!("{address}: {error}"));
            drop(eventually("the gate works", || gate.mutex("m").try_lock().ok()));
            gate.flush().unwrap();
        }
    }
}

#[test]
fn an_answer_that_comes_after_the_limit_of_a_look_up_is_used_too() {
    let server = crate::own!(Server::private_tcp(&[]));
    in_process("too late", &server, &[]);
}

fn too_late_an_answer_is_used(names: &Resolver, server: &Server, builder: GateBuilder) {
    let gate = builder.connect_timeout(SHORT).open().unwrap();
    let semaphore = gate.semaphore("s", 5);
    names.hold();
    kill_connections(&mut server.connection(), "normal");
    let fails =
        || semaphore.try_acquire().unwrap_err().to_string().contains("no address of the host within 10s");
    within(2 * SOON, || fails().then_some(())).expect("the look-up ends at its limit");
    names.takes(6 * SOON); // only the answers to look-ups that have begun arrive
    names.let_go();
    drop(eventually("the gate works", || semaphore.try_acquire().ok()));
}

#[test]
fn a_name_that_leads_to_another_address_is_followed_at_once() {
    let server = crate::own!(Server::private_tcp(&["--bind", "127.0.0.1", "127.0.0.2"]));
    in_process("moved", &server, &[]);
}

fn another_address_is_used(names: &Resolver, server: &Server, builder: GateBuilder) {
    let con = &mut server.connection();
    let gate = builder.connect_timeout(SOON).open().unwrap();
    let mutex = gate.mutex("m");
    for address in ["127.0.0.2", "127.0.0.1", "127.0.0.2"] {
        names.leads_to(address);
        kill_connections(con, "normal");
        mutex.lock().unwrap().release().unwrap();
        let list: String = redis::cmd("CLIENT").arg("LIST").query(con).unwrap();
        assert!(list.contains(&format!("laddr={address}:")), "{list}");
    }
    // A name without a server, and then with one.
    names.leads_to("127.0.0.3");
    kill_connections(con, "normal");
    assert!(mutex.try_lock().is_err());
    names.leads_to("127.0.0.1");
    drop(eventually("the new address is used", || mutex.try_lock().ok()));
}
