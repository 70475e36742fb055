//! Promise: a user of the ACL with just the permissions of the guide can do everything; with one less, what is missing is
//! named.

use crate::own;
#[cfg(feature = "cluster")]
use crate::support::cluster::Cluster;
use crate::support::raw::{Listener, Raw};
#[cfg(feature = "sentinel")]
use crate::support::sentinel::{MASTER, Sentinels};
use crate::support::{self, SOON, Server, eventually};

#[cfg(feature = "sentinel")]
use luagate::GateBuilder;
use luagate::autocomplete::{Prefix, Recent};
use luagate::errors::{Failure, FailureKind};
use luagate::scripts::semaphore::{self, Answer, Ask, LookupAnswer, ReleaseAnswer};
use luagate::{Cancel, Error, Gate, Released, Semaphore};
use redis::{Commands, Connection, IntoConnectionInfo};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// A message comes sooner than this; who hears none asks after 5 s.
const TOLD: Duration = Duration::from_secs(3);

/// The words of the guide's line.
fn line() -> Vec<&'static str> {
    let guide = include_str!("../../src/guide/production.md");
    let mut lines = guide.lines().filter(|line| line.starts_with("ACL SETUSER "));
    let line = lines.next().expect("the guide has the line");
    assert_eq!(lines.next(), None);
    line.split(' ').collect()
}

/// The permissions of the line.
fn permissions() -> Vec<&'static str> {
    line().into_iter().filter(|word| word.starts_with(['~', '&', '+'])).collect()
}

/// The permissions of a row of the guide's table, which only some need.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
fn row(needed_by: &str) -> Vec<String> {
    let guide = include_str!("../../src/guide/production.md").replace("\\|", "|");
    let mut rows = guide.lines().filter(|line| line.starts_with("| `+") && line.contains(needed_by));
    let row = rows.next().expect("the guide has the row");
    assert_eq!(rows.next(), None);
    let words = row.split('`').filter(|word| word.starts_with(['+', '&']));
    words.map(str::to_owned).collect()
}

/// Makes the guide's user, without these words of the line.
fn permit(con: &mut Connection, without: &[&str]) {
    let line = line();
    let mut command = redis::cmd(line[0]);
    for word in line.iter().skip(1) {
        if !without.contains(word) {
            command.arg(word);
        }
    }
    command.exec(con).unwrap();
}

/// The address of the guide's user at `url`.
fn as_user(url: &str) -> String {
    url.replace("redis://", "redis://luagate:password@")
}

/// Whether what was refused is `permission`, by its name.
#[track_caller]
fn assert_names(error: &Error, permission: &str) {
    let Error::Failed(failure) = error else { panic!("without {permission}: {error:?}") };
    assert_failure_names(failure, permission);
}

#[track_caller]
fn assert_failure_names(failure: &Failure, permission: &str) {
    assert_eq!(failure.kind(), FailureKind::Permission, "{failure}");
    let text = failure.to_string();
    let command = permission.trim_start_matches('+');
    // Redis 6 names the command without the subcommand.
    let old = command.split('|').next().unwrap();
    let named = [permission, &format!("'{command}'"), &format!("'{old}'")].iter().any(|name| text.contains(name));
    assert!(named, "without {permission}: {text}");
}

/// Does everything that there is to do, until something fails. `admin` looks and harms, as somebody else.
fn everything(url: &str, admin: &mut Connection) -> Result<(), Error> {
    let gate = Gate::open(url)?;
    let semaphore = gate.semaphore("all", 2);
    acquire_and_give_back(&semaphore)?;
    wait(&semaphore, admin)?;
    locks(&gate)?;
    by_scripts(url)?;
    lose_a_key(&gate, admin)?;
    latch(&gate, admin)?;
    autocomplete(&gate)
}

fn acquire_and_give_back(semaphore: &Semaphore) -> Result<(), Error> {
    let permit = semaphore.try_acquire()?;
    permit.refresh()?;
    permit.release()?;
    let mut permits = semaphore.clone().permanent().try_acquire_all()?;
    permits.release_some(1)?;
    assert_eq!(semaphore.available_permits()?, 1);
    let permits = semaphore.adopt(&permits.into_id())?;
    permits.release()?;
    semaphore.resize(3)?;
    semaphore.compare_and_resize(3, 2)?;
    semaphore.unpin()?;
    // Leases that end are taken back.
    let short = semaphore.clone().lease(Duration::from_millis(1));
    short.try_acquire_many(2)?.into_id();
    eventually("it is over", || match semaphore.available_permits() {
        Ok(0) => None,
        other => Some(other),
    })?;
    let permit = semaphore.try_acquire()?;
    semaphore.revoke(permit.id())?;
    assert_eq!(permit.release()?, Released::Gone);
    Ok(())
}

/// How many wait, as the administrator sees it.
fn waiting(admin: &mut Connection, key: &str) -> i64 {
    redis::cmd("ZCARD").arg(key).query(admin).unwrap()
}

/// Waits until somebody waits, or has stopped.
fn until_waiting<T>(admin: &mut Connection, key: &str, thread: &std::thread::ScopedJoinHandle<T>) {
    eventually("it waits", || (waiting(admin, key) == 1 || thread.is_finished()).then_some(()));
}

fn wait(semaphore: &Semaphore, admin: &mut Connection) -> Result<(), Error> {
    let held = semaphore.acquire_many(2)?;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(MINUTE).map(|it| (it, Instant::now())));
        until_waiting(admin, "luagate:semaphore.queue:{all}", &waiter);
        let start = Instant::now();
        held.release()?;
        let (permit, granted) = waiter.join().unwrap()?;
        assert!(granted - start < TOLD, "{:?}", granted - start);
        permit.release()?;
        Ok(())
    })
}

fn locks(gate: &Gate) -> Result<(), Error> {
    gate.mutex("m").lock()?.unlock()?;
    gate.mutexes(["{g}:a", "{g}:b"]).try_lock_all()?.unlock()?;
    gate.mutexes(["c", "d"]).lock_all(MINUTE)?.unlock()?;
    let rwlock = gate.rwlock("rw");
    rwlock.read()?.unlock()?;
    rwlock.write()?.downgrade()?.unlock()?;
    rwlock.inspect()?;
    Ok(())
}

/// What a client of its own may do: ask again in line.
fn by_scripts(url: &str) -> Result<(), Error> {
    let info = url.into_connection_info().unwrap();
    let settings = info.redis_settings().clone().set_skip_set_lib_name(); // `redis` would send CLIENT SETINFO
    let client = redis::Client::open(info.set_redis_settings(settings)).unwrap();
    let mut con = client.get_connection().unwrap();
    let names = luagate::scripts::Keys::semaphore("luagate", "raw").unwrap();
    let ask = |id, wait_ms| Ask { id, limit: 1, wait_ms, ..Ask::default() };
    semaphore::acquire(&mut con, &names, &ask("holder", 0))?;
    for _ in 0..2 {
        let answer = semaphore::acquire(&mut con, &names, &ask("waiter", 1_000))?;
        assert!(matches!(answer, Answer::Queued { .. }));
    }
    semaphore::lookup(&mut con, &names, "waiter")?;
    semaphore::inspect(&mut con, &names, 0, 10)?;
    semaphore::release(&mut con, &names, "waiter", 0, None)?;
    semaphore::release(&mut con, &names, "holder", 0, None)?;
    Ok(())
}

fn lose_a_key(gate: &Gate, admin: &mut Connection) -> Result<(), Error> {
    let lost = gate.semaphore("lost", 2);
    let permit = lost.try_acquire()?;
    let _: () = admin.del("luagate:semaphore:{lost}").unwrap();
    assert!(lost.try_acquire().is_err());
    permit.release()?;
    lost.try_acquire()?.release()?;
    Ok(())
}

fn latch(gate: &Gate, admin: &mut Connection) -> Result<(), Error> {
    let cancel = Cancel::new();
    let latch = gate.latch("l", 2).cancelled_by(&cancel);
    latch.count()?;
    latch.count_down_as("a")?;
    latch.count_down_as("a")?;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| latch.wait_timeout(MINUTE).map(|()| Instant::now()));
        until_waiting(admin, "luagate:latch.waiters:{l}", &waiter);
        let start = Instant::now();
        latch.count_down().inspect_err(|_| cancel.cancel())?;
        let opened = waiter.join().unwrap()?;
        assert!(opened - start < TOLD, "{:?}", opened - start);
        latch.delete()?;
        Ok(())
    })
}

fn autocomplete(gate: &Gate) -> Result<(), Error> {
    let recent = Recent::new(gate, "ann").keep(2);
    for contact in ["bob", "eve", "bob", "kim", "kim"] {
        recent.add(contact)?;
    }
    let found = recent.matching("k", 10)?;
    assert_eq!(found, ["kim"]);
    recent.remove("kim")?;
    let group = Prefix::new(gate, "guild");
    group.add(["bob", "ann"])?;
    let found = group.matching("a", 10)?;
    assert_eq!(found, ["ann"]);
    group.remove(["bob"])?;
    Ok(())
}

#[test]
fn with_the_guide_s_line_everything_works() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    permit(&mut admin, &[]);
    everything(&as_user(&server.url), &mut admin).unwrap();
    // Nor was anything refused that luagate passes over, up to the last connection.
    eventually("all connections close", || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut admin).unwrap();
        (list.lines().count() == 1).then_some(())
    });
    let refused: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query(&mut admin).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn with_one_permission_less_it_is_named() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    let permissions = permissions();
    assert!(permissions.len() > 30, "{permissions:?}");
    for missing in permissions {
        if missing == "+eval" || missing == "+info" {
            continue; // see the next test, and `warnings.rs`: a gate that may not ask is not warned
        }
        redis::cmd("FLUSHALL").exec(&mut admin).unwrap();
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut admin).unwrap();
        permit(&mut admin, &[missing]);
        match everything(&as_user(&server.url), &mut admin) {
            Ok(()) => panic!("{missing} is not needed"),
            Err(error) => assert_names(&error, missing),
        }
    }
}

/// What leads to a server which forgets every script before it can be called: a client has to send the text along.
fn forgetful(server: &Server) -> String {
    let target = server.url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { return };
            let mut server = TcpStream::connect(&target).unwrap();
            let (mut replies, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut replies, &mut back));
            std::thread::spawn(move || {
                let mut buffer = vec![0; 65_536];
                while let Ok(count @ 1..) = client.read(&mut buffer) {
                    let sent = buffer.get_mut(..count).unwrap();
                    forget(sent);
                    if server.write_all(sent).is_err() {
                        return;
                    }
                }
                let _ = server.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    url
}

/// Another SHA-1 in each EVALSHA.
fn forget(sent: &mut [u8]) {
    let call = b"EVALSHA\r\n$40\r\n";
    let mut at = 0;
    while let Some(found) = sent.get(at..).and_then(|rest| rest.windows(call.len()).position(|w| w == call)) {
        at += found + call.len();
        let end = (at + 40).min(sent.len());
        sent[at..end].fill(b'0');
    }
}

#[test]
fn eval_is_needed_where_scripts_are_forgotten_all_the_time() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    let url = as_user(&forgetful(&server));
    permit(&mut admin, &[]);
    everything(&url, &mut admin).unwrap();
    permit(&mut admin, &["+eval"]);
    let error = everything(&url, &mut admin).unwrap_err();
    assert_names(&error, "+eval");
}

#[test]
fn a_permission_that_is_given_later_helps_the_next_wait() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    permit(&mut admin, &["+subscribe"]);
    let gate = Gate::open(&as_user(&server.url)).unwrap();
    let semaphore = gate.semaphore("all", 2);
    let held = semaphore.acquire_many(2).unwrap();
    for _ in 0..2 {
        let error = semaphore.acquire_timeout(MINUTE).unwrap_err();
        assert_names(&error.into(), "+subscribe");
    }
    permit(&mut admin, &[]);
    held.release().unwrap();
    wait(&semaphore, &mut admin).unwrap();
}

#[test]
fn a_permission_that_is_taken_away_ends_the_wait() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    permit(&mut admin, &[]);
    let gate = Gate::open(&as_user(&server.url)).unwrap();
    let semaphore = gate.semaphore("all", 1);
    let _held = semaphore.acquire().unwrap();
    let queue = "luagate:semaphore.queue:{all}";
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(MINUTE));
        until_waiting(&mut admin, queue, &waiter);
        permit(&mut admin, &["&luagate:inbox:*"]);
        let start = Instant::now();
        support::kill_connections(&mut admin, "pubsub"); // Redis has done so itself, or not yet
        let error = waiter.join().unwrap().unwrap_err();
        assert_names(&error.into(), "&luagate:inbox:*");
        assert!(start.elapsed() < TOLD, "{:?}", start.elapsed());
    });
    eventually("it left the line", || (waiting(&mut admin, queue) == 0).then_some(()));
}

#[test]
fn who_may_not_be_told_is_passed_over() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    let mut raw = Raw::new(&server, 1);
    let (hidden, mut open) = (Listener::new(&server, "hidden"), Listener::new(&server, "open"));
    let teller = ["SETUSER", "teller", "on", ">password", "~*", "+@all", "resetchannels"];
    let mut setuser = redis::cmd("ACL");
    setuser.arg(&teller).arg(format!("&{}", open.channel));
    setuser.exec(&mut admin).unwrap();
    let url = server.url.replace("redis://", "redis://teller:password@");
    let mut teller = redis::Client::open(url).unwrap().get_connection().unwrap();
    // The second time nobody else waits.
    for next in ["second", "nobody"] {
        let holder = raw.grant(raw.ask("holder"));
        let line = [("first", &hidden.channel), ("second", &open.channel)];
        for (id, channel) in line.iter().take(if next == "second" { 2 } else { 1 }) {
            raw.queue(Ask { wait_ms: 15_000, inbox: &format!("{channel}#secret"), ..raw.ask(id) });
        }
        let released = semaphore::release(&mut teller, &raw.keys, "holder", 0, None).unwrap();
        let in_use = u32::from(next == "second");
        assert!(
            matches!(released, ReleaseAnswer::Released { left: 0, usage } if usage.in_use == in_use),
            "{released:?}"
        );
        assert!(matches!(raw.lookup("first"), LookupAnswer::Gone { .. }));
        assert_eq!((raw.in_use(), raw.inspect().waiter_count), (in_use, 0));
        if next == "second" {
            let told = open.next_grant();
            assert_eq!(told[0], "second");
            assert!(told[2].parse::<u64>().unwrap() > holder.fence);
            raw.assert_released("second");
        }
    }
}

#[test]
fn a_database_takes_select() {
    let server = own!(Server::private_tcp(&[]));
    let mut admin = server.connection();
    permit(&mut admin, &[]);
    let url = format!("{}1", as_user(&server.url));
    let error = Gate::open(&url).unwrap_err();
    assert_names(&error.into(), "+select");
    redis::cmd("ACL").arg(&["SETUSER", "luagate", "+select"]).exec(&mut admin).unwrap();
    redis::cmd("SELECT").arg(1).exec(&mut admin).unwrap();
    everything(&url, &mut admin).unwrap();
}

/// The guide's user with these permissions, too.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
fn permit_also<'a>(con: &mut Connection, more: impl IntoIterator<Item = &'a String>) {
    permit(con, &[]);
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("luagate");
    for permission in more {
        command.arg(permission);
    }
    command.exec(con).unwrap();
}

/// Once nobody is connected any more, nobody has been refused anything.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
#[track_caller]
fn assert_nothing_refused(con: &mut Connection) {
    eventually("all connections close", || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(con).unwrap();
        let is_there = |user| list.contains(user);
        (!["user=luagate", "user=finder"].into_iter().any(is_there)).then_some(())
    });
    let refused: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query(con).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Long beside a pause of a busy machine.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
const CONFIRMED: Duration = Duration::from_secs(5);

/// What a cluster needs beyond one server: to find a node, to be sent to another one, and confirmation by replicas.
#[cfg(feature = "cluster")]
fn everything_on(cluster: &Cluster) -> Result<(), Error> {
    let url = format!("redis+cluster://luagate:password@{}", cluster.addresses()[0]);
    let gate = Gate::builder(&url).read_timeout(CONFIRMED * 2).min_replicas(1, CONFIRMED).open()?;
    let master = cluster.masters()[1];
    let mut admin = cluster.connection(cluster.master(cluster.slot("{all}")));
    wait(&gate.semaphore("all", 2), &mut admin)?;
    let name = cluster.name_on(master);
    let slot = cluster.slot(&format!("{{{name}}}"));
    let moving = cluster.begin_move(slot, cluster.masters()[2]);
    let asked = Recent::new(&gate, &name).add("bob");
    moving.move_keys(cluster);
    moving.end(cluster);
    Ok(asked.map(drop)?)
}

#[cfg(feature = "cluster")]
#[test]
fn on_a_cluster_with_replicas_two_rows_of_the_guide_are_added() {
    let cluster = own!(Cluster::new());
    let more = [row("a cluster"), row("`min_replicas`")].concat();
    assert_eq!(more.len(), 3, "{more:?}");
    for (_, mut con) in cluster.connections() {
        permit_also(&mut con, &more);
    }
    everything_on(&cluster).unwrap();
    for (_, mut con) in cluster.connections() {
        assert_nothing_refused(&mut con);
    }
    for missing in &more {
        for (_, mut con) in cluster.connections() {
            permit_also(&mut con, more.iter().filter(|word| *word != missing));
        }
        let error = everything_on(&cluster).unwrap_err();
        assert_names(&error, missing);
    }
}

/// Makes a user of the sentinels with this permission.
#[cfg(feature = "sentinel")]
fn permit_finding(group: &Sentinels, permission: &[String]) {
    for (_, mut con) in group.sentinels.connections() {
        let mut command = redis::cmd("ACL");
        command.arg(&["SETUSER", "finder", "reset", "on", ">password"]);
        command.arg(permission).exec(&mut con).unwrap();
    }
}

#[cfg(feature = "sentinel")]
#[test]
fn with_sentinels_a_row_of_the_guide_is_added_and_there_is_one_for_them() {
    let group = own!(Sentinels::new());
    let (there, finds) = (row("the user of the master"), row("users of their own"));
    let confirmed = row("`min_replicas`");
    for (_, mut con) in group.connections() {
        permit_also(&mut con, there.iter().chain(&confirmed));
    }
    permit_finding(&group, &finds);
    let urls = group.sentinels.addresses().into_iter();
    let urls: Vec<String> = urls.map(|address| format!("redis://finder:password@{address}")).collect();
    let everything = || -> Result<(), Error> {
        let gate = GateBuilder::sentinel(&urls, MASTER, "redis://luagate:password@any")
            .read_timeout(CONFIRMED * 2)
            .min_replicas(1, CONFIRMED)
            .open()?;
        wait(&gate.semaphore("all", 2), &mut group.connection(group.master()))
    };
    everything().unwrap();
    assert_nothing_refused(&mut group.connection(group.master()));
    for (_, mut con) in group.sentinels.connections() {
        assert_nothing_refused(&mut con);
    }
    permit_finding(&group, &[]);
    assert_names(&everything().unwrap_err(), &finds[0]);
    permit_finding(&group, &finds[..1]);
    for (_, mut con) in group.connections() {
        permit_also(&mut con, &confirmed);
    }
    everything().unwrap(); // though nobody says who is the master, or that another one is
    for (_, mut con) in group.connections() {
        permit_also(&mut con, &there);
    }
    assert_names(&everything().unwrap_err(), &confirmed[0]);
}

/// How many connections there have been.
fn connections(con: &mut Connection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("stats").query(con).unwrap();
    let mut lines = stats.lines();
    let count = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
    count.unwrap().parse().unwrap()
}

#[test]
fn where_nobody_knows_the_commands_waits_go_on_by_asking() {
    // As behind a proxy that has no messages: nothing is forbidden, only not there.
    for unknown in ["PUBSUB", "SUBSCRIBE"] {
        let server = own!(Server::private(&["--rename-command", unknown, ""]));
        let mut con = server.connection();
        let semaphore = server.gate().semaphore("polled", 1);
        let held = semaphore.clone().lease(Duration::from_secs(1)).acquire().unwrap();
        let before = connections(&mut con);
        let start = Instant::now();
        let granted = semaphore.acquire_timeout(MINUTE).unwrap();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        assert!(granted.fence() > held.fence());
        let made = connections(&mut con) - before;
        assert!(made <= 2, "{unknown}: it tries again and again: {made}");
    }
}
