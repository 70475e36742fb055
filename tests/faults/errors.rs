//! Promise: after each error of a server or a proxy, a try, a wait in line, a renewal and a release do what
//! `lua/errors.json` says.

use crate::own;
use crate::support::refusing::Refusing;
use crate::support::{Server, command_counts, eventually, root};

use futures_executor::block_on;
use luagate::errors::{AcquireError, CallError, FailureKind, PermitError, ReleaseError, TryAcquireError};
use luagate::{Error, Gate, GateBuilder, Lease, Permit, Released, Semaphore};
use redis::Connection;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// A row of the file.
#[derive(Clone, Debug)]
struct Row {
    /// As the server sends it.
    error: String,
    may_have_run: bool,
    tries_again: bool,
    waits_on: bool,
}

fn file() -> serde_json::Value {
    let text = std::fs::read_to_string(root().join("lua/errors.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn rows() -> Vec<Row> {
    let file = file();
    let rows = file["errors"].as_array().unwrap().iter().map(|row| {
        let one_of = |key: &str, values: [&str; 2]| {
            let value = row[key].as_str().unwrap_or_default();
            assert!(values.contains(&value), "{key}: {row}");
            value == values[1]
        };
        assert!(one_of("renewal", ["end", "repeat"]) && one_of("release", ["end", "repeat"]), "{row}");
        Row {
            error: row["example"].as_str().unwrap().to_owned(),
            may_have_run: one_of("run", ["no", "unknown"]),
            tries_again: one_of("try", ["end", "repeat"]),
            waits_on: one_of("wait", ["end", "repeat"]),
        }
    });
    rows.collect()
}

/// How a caller calls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Thread,
    Task,
}

impl Form {
    fn open(self, builder: GateBuilder) -> Result<Gate, CallError> {
        match self {
            Form::Thread => builder.open(),
            Form::Task => block_on(builder.open_async()),
        }
    }

    fn try_acquire(self, semaphore: &Semaphore) -> Result<Permit, TryAcquireError> {
        match self {
            Form::Thread => semaphore.try_acquire(),
            Form::Task => block_on(semaphore.try_acquire_async()),
        }
    }

    fn acquire(self, semaphore: &Semaphore) -> Result<Permit, AcquireError> {
        match self {
            Form::Thread => semaphore.acquire_timeout(LONG),
            Form::Task => block_on(semaphore.acquire_timeout_async(LONG)),
        }
    }

    fn refresh(self, permit: &Permit) -> Result<(), PermitError> {
        match self {
            Form::Thread => permit.refresh(),
            Form::Task => block_on(permit.refresh_async()),
        }
    }

    fn release(self, permit: Permit) -> Result<Released, ReleaseError> {
        match self {
            Form::Thread => permit.release(),
            Form::Task => block_on(permit.release_async()),
        }
    }
}

/// A gate behind a proxy, and another one without.
struct Scene {
    row: Row,
    form: Form,
    proxy: Refusing,
    gate: Gate,
    direct: Gate,
    prefix: String,
}

impl Scene {
    fn new(server: &Server, row: Row, form: Form) -> Scene {
        let proxy = Refusing::new(server);
        let gate = form.open(Gate::builder(&proxy.url).prefix(&server.prefix).read_timeout(LONG)).unwrap();
        Scene { row, form, proxy, gate, direct: server.gate(), prefix: server.prefix.clone() }
    }

    /// The name of a semaphore for this row alone.
    fn name(&self, what: &str) -> String {
        let row: String =
            self.row.error.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        format!("{what}:{:?}:{row}", self.form).chars().take(150).collect()
    }

    /// The scripts that the proxy refuses were called as often as it refuses them.
    fn was_refused(&self, count: u32) {
        eventually("the calls are refused", || (self.proxy.refused() == count).then_some(()));
    }

    fn is_free(&self, name: &str) {
        let semaphore = self.direct.semaphore(name, 1);
        eventually("nothing is held", || (semaphore.inspect().unwrap().in_use == 0).then_some(()));
    }

    /// The outcome of a call says whether it may have run.
    fn ended(&self, error: &TryAcquireError) {
        let unknown = matches!(error, TryAcquireError::Unknown(_));
        assert_eq!(unknown, self.row.may_have_run, "{error}: {:?}", self.row);
    }

    fn check_try(&self) {
        let name = self.name("try");
        self.proxy.refuse("acquire", &self.row.error, 2);
        match self.form.try_acquire(&self.gate.semaphore(&name, 1)) {
            Ok(_) => assert!(self.row.tries_again, "it is granted after {:?}", self.row),
            Err(error) => {
                assert!(!self.row.tries_again, "{error}: {:?}", self.row);
                self.ended(&error);
                self.was_refused(1);
            }
        }
        self.is_free(&name);
    }

    /// The first call of a wait is made again as a try is.
    fn check_first_call(&self) {
        self.proxy.refuse("acquire", &self.row.error, 2);
        let acquired = self.form.acquire(&self.gate.semaphore(&self.name("first"), 1));
        assert_eq!(acquired.is_ok(), self.row.tries_again, "{acquired:?}: {:?}", self.row);
    }

    fn check_wait(&self) {
        let name = self.name("wait");
        let line = self.direct.semaphore(&name, 1);
        let holder = line.clone().lease(Lease::fixed(LONG)).acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| self.form.acquire(&self.gate.semaphore(&name, 1)));
            eventually("it waits", || (line.inspect().unwrap().waiter_count == 1).then_some(()));
            self.proxy.refuse("acquire", &self.row.error, 2);
            holder.refresh_for(Duration::from_millis(100)).unwrap(); // the waiter asks when this lease ends
            let acquired = waiter.join().unwrap();
            assert_eq!(acquired.is_ok(), self.row.waits_on, "{acquired:?}: {:?}", self.row);
            assert!(self.proxy.refused() > 0, "it did not ask");
        });
        self.is_free(&name);
    }

    fn check_renewal(&self) {
        let lease = Lease::renewed(Duration::from_secs(6));
        let permit = self.gate.semaphore(&self.name("renewal"), 1).lease(lease).acquire().unwrap();
        self.proxy.refuse("refresh", &self.row.error, 2);
        self.was_refused(2);
        let renewed = self.gate.counters().renewed;
        eventually("it is renewed", || (self.gate.counters().renewed > renewed).then_some(()));
        assert!(!permit.is_lost(), "{:?}", self.row);
    }

    fn check_release(&self) {
        let name = self.name("release");
        let semaphore = self.gate.semaphore(&name, 1).lease(Lease::PERMANENT);
        let permit = self.form.acquire(&semaphore).unwrap();
        self.proxy.refuse("release", &self.row.error, 2);
        drop(permit);
        self.is_free(&name);
        assert_eq!(self.proxy.refused(), 2);
        // The caller that waits for its release gets the error, if the release is not repeated while it
        // waits.
        let permit = self.form.acquire(&semaphore).unwrap();
        self.proxy.refuse("release", &self.row.error, 2);
        match self.form.release(permit) {
            Ok(released) => {
                assert_eq!((released, self.row.tries_again), (Released::Released, true), "{:?}", self.row)
            }
            Err(error) => {
                assert!(!self.row.tries_again, "{error}: {:?}", self.row);
                assert_eq!(matches!(error.error(), CallError::Unknown(_)), self.row.may_have_run, "{error}");
            }
        }
        self.is_free(&name);
    }
}

impl Scene {
    /// An error that stays ends the call and the wait at their limits. On a loaded machine a reply may come
    /// too late, or the first one only at the limit. Then the call is made again.
    fn check_end(&self) {
        let Scene { row, form, proxy, .. } = self;
        let short = Duration::from_millis(500);
        let builder =
            || Gate::builder(&proxy.url).prefix(&self.prefix).read_timeout(short).outage_timeout(short);
        let gate = eventually("the gate is open", || form.open(builder()).ok());
        let semaphore = gate.semaphore(&self.name("end"), 1);
        let error = eventually("the call ends", || {
            proxy.refuse("acquire", &row.error, u32::MAX);
            let error = form.try_acquire(&semaphore).unwrap_err();
            (!is_late(&error.clone().into()) && (proxy.refused() > 1) == row.tries_again).then_some(error)
        });
        self.ended(&error);
        let error = eventually("the wait ends", || {
            let error = form.acquire(&semaphore).unwrap_err();
            (!is_late(&error.clone().into())).then_some(error)
        });
        assert_eq!(matches!(error, AcquireError::Unknown(_)), row.may_have_run, "{error}: {row:?}");
    }
}

fn is_late(error: &Error) -> bool {
    matches!(error, Error::Failed(failure) | Error::Unknown(failure)
        if matches!(failure.kind(), FailureKind::TimedOut | FailureKind::Unreachable))
}

/// How many rows are checked at the same time, by one test at a time: the machine must answer within their
/// time limits.
const AT_ONCE: usize = 46;

/// Checks all rows.
fn check_each(check: fn(&Scene)) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let server = own!(Server::private_tcp(&[]));
    let rows = rows();
    assert!(rows.len() > 40, "{}", rows.len());
    let cases: Vec<_> = rows.iter().flat_map(|row| [(row, Form::Thread), (row, Form::Task)]).collect();
    for some in cases.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            for (row, form) in some {
                let server = &server;
                scope.spawn(move || check(&Scene::new(server, (*row).clone(), *form)));
            }
        });
    }
}

#[test]
fn a_try_is_repeated_after_an_error_that_passes() {
    check_each(Scene::check_try);
}

#[test]
fn the_first_call_of_a_wait_is_repeated_after_an_error_that_passes() {
    check_each(Scene::check_first_call);
}

#[test]
fn a_wait_in_line_goes_on_after_an_error_that_passes() {
    check_each(Scene::check_wait);
}

#[test]
fn a_call_whose_error_does_not_pass_ends_at_its_limit() {
    check_each(Scene::check_end);
}

#[test]
fn a_renewal_is_repeated_after_every_error() {
    check_each(Scene::check_renewal);
}

#[test]
fn a_release_is_repeated_after_every_error() {
    check_each(Scene::check_release);
}

/// A real server refuses all writes between `begin` and `end`.
fn survives(server: &Server, error: &str, begin: impl Fn(&mut Connection), end: impl Fn(&mut Connection)) {
    let mut con = server.connection();
    for form in [Form::Thread, Form::Task] {
        let builder = Gate::builder(&server.url).prefix(&server.prefix);
        let gate = form.open(builder.read_timeout(LONG).outage_timeout(LONG)).unwrap();
        let semaphore = |what: &str| gate.semaphore(&format!("{what}:{form:?}"), 1).lease(Lease::fixed(LONG));
        let (line, tried) = (semaphore("line"), semaphore("tried"));
        let [refreshed, released, dropped] = ["refreshed", "released", "dropped"]
            .map(|what| semaphore(what).lease(Lease::PERMANENT).acquire().unwrap());
        let held = line.acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| form.acquire(&line));
            eventually("it waits", || (line.inspect().unwrap().waiter_count == 1).then_some(()));
            held.refresh_for(Duration::from_secs(1)).unwrap(); // the waiter asks when this lease ends
            begin(&mut con);
            let write: redis::RedisResult<()> = redis::cmd("SET").arg("any").arg(1).query(&mut con);
            assert_eq!(write.unwrap_err().code(), Some(error));
            let before = command_counts(&mut con)["evalsha"];
            drop(dropped);
            let tried = scope.spawn(|| form.try_acquire(&tried).map(drop));
            let refreshed = scope.spawn(|| form.refresh(&refreshed));
            let released = scope.spawn(|| form.release(released));
            eventually("they repeat their calls", || {
                (command_counts(&mut con)["evalsha"] > before + 60).then_some(())
            });
            end(&mut con);
            tried.join().unwrap().unwrap();
            refreshed.join().unwrap().unwrap();
            assert_eq!(released.join().unwrap().unwrap(), Released::Released);
            drop(waiter.join().unwrap().unwrap());
        });
        let dropped = semaphore("dropped");
        eventually("the dropped permit is released", || {
            (dropped.inspect().unwrap().in_use == 0).then_some(())
        });
    }
}

fn set(con: &mut Connection, name: &str, value: &str) {
    redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec(con).unwrap();
}

#[test]
fn nothing_fails_while_too_few_replicas_are_connected() {
    let server = own!(Server::private(&[]));
    let required = |count: &'static str| move |con: &mut Connection| set(con, "min-replicas-to-write", count);
    survives(&server, "NOREPLICAS", required("1"), required("0"));
}

/// A folder is where the server writes its snapshot, so no snapshot succeeds.
#[test]
fn nothing_fails_while_the_server_cannot_save_its_data() {
    let server = own!(Server::private(&[]));
    let mut con = server.connection();
    set(&mut con, "save", "3600 1"); // otherwise a failed snapshot refuses nothing
    let (_, folder): (String, String) = redis::cmd("CONFIG").arg("GET").arg("dir").query(&mut con).unwrap();
    let target = Path::new(&folder).join("dump.rdb");
    let save = |con: &mut Connection, succeeds: bool| {
        redis::cmd("BGSAVE").exec(con).unwrap();
        eventually("the snapshot ends", || {
            let info: String = redis::cmd("INFO").arg("persistence").query(con).unwrap();
            let status = if succeeds { "ok" } else { "err" };
            let has_ended = info.contains("rdb_bgsave_in_progress:0");
            (has_ended && info.contains(&format!("rdb_last_bgsave_status:{status}"))).then_some(())
        });
    };
    let begin = |con: &mut Connection| {
        let _ = std::fs::remove_file(&target);
        std::fs::create_dir(&target).unwrap();
        save(con, false);
    };
    let end = |con: &mut Connection| {
        std::fs::remove_dir(&target).unwrap();
        save(con, true);
    };
    survives(&server, "MISCONF", begin, end);
}

/// The codes in the executable of the server that is tested. So a code of a later version fails this test
/// until somebody has decided what it means.
#[test]
fn the_file_has_every_code_of_the_server() {
    let mut server = own!(Server::private(&[]));
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.id())).unwrap_or_default();
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let files: BTreeSet<&str> =
        files.filter(|file| file.contains("redis") || file.contains("valkey")).collect();
    let mut codes = BTreeSet::new();
    for file in files.into_iter().filter(|file| !file.ends_with(".so")) {
        codes.extend(codes_in(&std::fs::read(file).unwrap()));
    }
    assert!(codes.len() > 20 || !cfg!(target_os = "linux"), "{codes:?}");
    let file = file();
    let listed = file["errors"].as_array().unwrap().iter().filter_map(|row| row["code"].as_str());
    let other = file["of_other_commands"].as_object().unwrap().keys().map(String::as_str);
    let known: BTreeSet<&str> = listed.chain(other).chain(["ERR"]).collect();
    let missing: Vec<&String> = codes.iter().filter(|code| !known.contains(code.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The words in capitals after a `-` at the beginning of a text, and before more words.
fn codes_in(executable: &[u8]) -> BTreeSet<String> {
    let texts = executable.split(|byte| *byte == 0).filter_map(|text| text.strip_prefix(b"-"));
    let texts =
        texts.filter(|text| text.iter().all(|byte| byte.is_ascii_graphic() || b" \r\n".contains(byte)));
    let words =
        texts.filter(|text| text.contains(&b' ')).filter_map(|text| text.split(|byte| *byte == b' ').next());
    let codes = words.filter(|word| word.len() >= 3 && word.iter().all(u8::is_ascii_uppercase));
    codes.map(|code| String::from_utf8_lossy(code).into_owned()).collect()
}
