//! Promise: a password may change while a program runs. A gate asks the program for it at each connection.

use crate::own;
#[cfg(feature = "tls")]
use crate::own_tls;
use crate::support::stub_sentinel::StubSentinel;
use crate::support::{SOON, Server, eventually};
#[cfg(feature = "tls")]
use crate::tls_server::Authority;

use futures_executor::block_on;
use luagate::errors::{CallError, FailureKind};
use luagate::{Credentials, Error, Gate, GateBuilder, Lease};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const USER: &str = "clerk";
const MINUTE: Duration = Duration::from_secs(60);

/// The password that the function of a gate returns, and how often it was called.
#[derive(Default)]
struct Vault {
    password: Mutex<String>,
    asked: AtomicUsize,
}

impl Vault {
    fn with(password: &str) -> Arc<Vault> {
        let vault = Vault::default();
        vault.store(password);
        Arc::new(vault)
    }

    fn store(&self, password: &str) {
        *self.password.lock().unwrap() = password.to_owned();
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn ask(&self) -> Result<Credentials, &'static str> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(Credentials::password(self.password.lock().unwrap().as_str()))
    }
}

fn asking(builder: GateBuilder, vault: &Arc<Vault>) -> GateBuilder {
    let vault = vault.clone();
    builder.credentials(move || vault.ask())
}

/// The user has only this password from now on, and its connections end.
fn rotate(server: &Server, password: &str) {
    let con = &mut server.connection();
    let given = format!(">{password}");
    let mut set = redis::cmd("ACL");
    set.arg(&["SETUSER", USER, "on", "resetpass", &given, "~*", "&*", "+@all"]).exec(con).unwrap();
    redis::cmd("CLIENT").arg(&["KILL", "USER", USER]).exec(con).unwrap();
}

#[track_caller]
fn assert_no_login(error: impl Into<Error>) -> String {
    let error = error.into();
    let (Error::Failed(failure) | Error::Unknown(failure)) = &error else { panic!("{error}") };
    assert_eq!(failure.kind(), FailureKind::Authentication, "{error}");
    error.to_string()
}

/// Opens a gate, lets the password change twice, and uses the gate after each change.
fn follows_changes(server: &Server, builder: GateBuilder) {
    rotate(server, "first");
    let vault = Vault::with("first");
    let gate = asking(builder.prefix(&server.prefix), &vault).open().unwrap();
    let asked = vault.asked();
    assert!(asked > 0);
    for password in ["second", "third"] {
        rotate(server, password);
        vault.store(password);
        drop(gate.mutex("m").lock().unwrap());
        drop(block_on(gate.mutex("m").lock_async()).unwrap());
    }
    assert!(vault.asked() >= asked + 2);
}

#[test]
fn the_current_password_is_used_for_each_connection_at_every_kind_of_address() {
    let (server, node) = (own!(Server::private_tcp(&[])), own!(Server::cluster_node()));
    let sentinel = StubSentinel::naming(&server).address;
    for (url, server) in [
        (format!("redis://{USER}@{}", server.address()), &server),
        (format!("{}?user={USER}&db=1", server.socket_url()), &server),
        (format!("redis+sentinel://{USER}@{sentinel}/orders"), &server),
        (format!("redis+cluster://{USER}@{}", node.address()), &node),
    ] {
        follows_changes(server, Gate::builder(&url));
    }
}

#[cfg(feature = "tls")]
#[test]
fn the_current_password_is_used_for_each_connection_with_tls() {
    let authority = Authority::new("one");
    let own = authority.identity();
    let mut server = own_tls!(authority.server(&own, &[]));
    server.client = Some(authority.client(&server.url, &own));
    let url = server.url.replace("//", &format!("//{USER}@"));
    let builder = Gate::builder(&url).root_certificates(&authority.pem);
    follows_changes(&server, builder.client_certificate(&own.chain, &own.key));
}

#[test]
fn the_user_that_the_function_returns_counts_more_than_that_of_the_url() {
    let server = own!(Server::private_tcp(&[]));
    rotate(&server, "first");
    let url = format!("redis://nobody@{}", server.address());
    let builder = Gate::builder(&url).credentials(|| Ok::<_, &str>(Credentials::user(USER, "first")));
    builder.open().unwrap().mutex("m").lock().unwrap().release().unwrap();
    let refused = Gate::builder(&url).credentials(|| Ok::<_, &str>(Credentials::password("first")));
    assert_no_login(refused.open().unwrap_err());
}

/// The program gets the new password later than the server, as with tokens of a cloud.
#[test]
fn waits_renewals_and_releases_survive_a_password_that_the_program_does_not_have_yet() {
    let server = own!(Server::private_tcp(&[]));
    rotate(&server, "old");
    let vault = Vault::with("old");
    let url = format!("redis://{USER}@{}", server.address());
    let builder = Gate::builder(&url).prefix(&server.prefix).outage_timeout(MINUTE);
    let (gate, other) = (asking(builder, &vault).open().unwrap(), server.gate());
    let long = Lease::fixed(10 * MINUTE);
    let line = other.semaphore("line", 1).lease(long).acquire().unwrap();
    let renewed =
        gate.semaphore("renewed", 1).lease(Lease::renewed(Duration::from_secs(6))).acquire().unwrap();
    let dropped = gate.semaphore("dropped", 1).lease(long).acquire().unwrap();
    let waits = [false, true].map(|is_task| {
        let semaphore = gate.semaphore("line", 1);
        thread::spawn(move || match is_task {
            true => block_on(semaphore.acquire_timeout_async(MINUTE)).map(drop),
            false => semaphore.acquire_timeout(MINUTE).map(drop),
        })
    });
    eventually("both wait", || {
        (other.semaphore("line", 1).inspect().unwrap().waiter_count == 2).then_some(())
    });
    rotate(&server, "new");
    let (asked, renewals) = (vault.asked(), gate.counters().renewed);
    let begun = Instant::now();
    assert_no_login(gate.semaphore("free", 1).try_acquire().unwrap_err());
    assert_no_login(block_on(gate.semaphore("free", 1).acquire_async()).unwrap_err());
    assert!(begun.elapsed() < MINUTE / 2, "reported at once");
    drop(dropped);
    eventually("the gate asks again and again", || (vault.asked() >= asked + 4).then_some(()));
    assert!(!waits.iter().any(thread::JoinHandle::is_finished));
    vault.store("new");
    eventually("the lease is renewed", || (gate.counters().renewed > renewals).then_some(()));
    drop(eventually("the dropped permit is released", || other.semaphore("dropped", 1).try_acquire().ok()));
    line.release().unwrap();
    waits.into_iter().for_each(|wait| wait.join().unwrap().unwrap());
    assert!(!renewed.is_lost());
    assert_eq!(gate.counters().lost, 0);
}

/// A gate whose function does what this returns. The function is asked for each connection after the first
/// one.
fn doing(server: &Server, then: impl Fn() -> Result<Credentials, String> + Send + Sync + 'static) -> Gate {
    let is_open = Arc::new(AtomicBool::new(false));
    let opened = is_open.clone();
    let function = move || match is_open.load(Ordering::SeqCst) {
        true => then(),
        false => Ok(Credentials::user(USER, "first")),
    };
    let gate = Gate::builder(&server.url).prefix(&server.prefix).credentials(function).open().unwrap();
    opened.store(true, Ordering::SeqCst);
    gate
}

#[test]
fn a_function_that_fails_or_panics_is_a_failed_connection_and_is_asked_again() {
    let server = own!(Server::private_tcp(&[]));
    rotate(&server, "first");
    let step = Arc::new(AtomicUsize::new(0));
    let of_function = step.clone();
    let gate = doing(&server, move || match of_function.load(Ordering::SeqCst) {
        0 => Err("the vault is closed".to_owned()),
        1 => panic!("the password is hunter2"),
        _ => Ok(Credentials::user(USER, "first")),
    });
    rotate(&server, "first");
    let mutex = gate.mutex("m");
    // An attempt of another thread of the gate may have begun before the step.
    let fails = |text: &str| {
        eventually("the text of the failure", || {
            let errors = [mutex.try_lock().unwrap_err(), block_on(mutex.try_lock_async()).unwrap_err()];
            let [thread, task] = errors.map(assert_no_login);
            assert!(!thread.contains("hunter2") && !task.contains("hunter2"), "{thread} {task}");
            (thread.contains(text) && task.contains(text)).then_some(())
        });
    };
    fails("the function for credentials failed: the vault is closed");
    step.store(1, Ordering::SeqCst);
    fails("the function for credentials panicked");
    step.store(2, Ordering::SeqCst);
    drop(eventually("the function is asked again", || mutex.try_lock().ok()));
}

#[test]
fn a_function_that_blocks_keeps_no_caller_longer_than_a_silent_server() {
    let server = own!(Server::private_tcp(&[]));
    rotate(&server, "first");
    let (go_on, wait) = channel::<()>();
    let (wait, is_asked) = (Mutex::new(wait), Arc::new(AtomicBool::new(false)));
    let asked = is_asked.clone();
    let gate = doing(&server, move || {
        asked.store(true, Ordering::SeqCst);
        let _ = wait.lock().unwrap().recv();
        Ok(Credentials::user(USER, "first"))
    });
    rotate(&server, "first");
    let semaphore = gate.semaphore("m", 1);
    let (sender, first) = channel();
    let other = semaphore.clone();
    thread::spawn(move || sender.send(other.try_acquire().map(drop)));
    eventually("the function is asked", || is_asked.load(Ordering::SeqCst).then_some(()));
    for wait in
        [&(|| semaphore.acquire_timeout(Duration::from_millis(50)).map(drop)) as &dyn Fn() -> _, &|| {
            block_on(semaphore.acquire_timeout_async(Duration::from_millis(50))).map(drop)
        }]
    {
        let begun = Instant::now();
        wait().unwrap_err();
        assert!(begun.elapsed() < SOON / 2, "{:?}", begun.elapsed());
    }
    let error = first.recv_timeout(SOON).expect("it returns").unwrap_err().to_string();
    assert!(error.contains("the function for credentials has not returned"), "{error}");
    drop(go_on); // from now on the function returns at once
    drop(eventually("the gate connects", || semaphore.try_acquire().ok()));
}

#[test]
fn the_function_runs_in_a_thread_of_the_gate_without_its_locks() {
    let server = own!(Server::private_tcp(&[]));
    rotate(&server, "first");
    let (names, seen) = channel();
    let kept: Arc<Mutex<Option<(Gate, luagate::Permit)>>> = Arc::default();
    let used = kept.clone();
    let gate = doing(&server, move || {
        let _ = names.send(thread::current().name().map(str::to_owned));
        // All that does not need the server can be done here.
        if let Some((gate, permit)) = used.lock().unwrap().take() {
            let _ = (gate.counters(), permit.remaining(), permit.is_lost(), format!("{gate:?}"));
            drop((gate.mutex("other"), permit));
        }
        Ok(Credentials::user(USER, "first"))
    });
    let permit = gate.semaphore("m", 1).lease(Lease::fixed(10 * MINUTE)).acquire().unwrap();
    *kept.lock().unwrap() = Some((gate.clone(), permit));
    rotate(&server, "first");
    gate.mutex("n").lock().unwrap().release().unwrap();
    assert_eq!(seen.recv_timeout(SOON).unwrap().as_deref(), Some("luagate-io"));
    assert!(kept.lock().unwrap().is_none());
    drop(eventually("the permit that the function dropped is free", || {
        gate.semaphore("m", 1).try_acquire().ok()
    }));
}

#[test]
fn a_password_in_the_url_and_a_function_for_it_contradict_each_other() {
    for url in [
        "redis://:hunter2@127.0.0.1:1/",
        "redis://127.0.0.1:1?password=hunter2",
        "unix:///no/such/socket?pass=hunter2",
        "redis+cluster://:hunter2@127.0.0.1:1",
        "redis+sentinel://me:hunter2@127.0.0.1:1/orders",
    ] {
        let builder = Gate::builder(url).credentials(|| Ok::<_, &str>(Credentials::password("hunter2")));
        let CallError::Invalid(invalid) = builder.open().unwrap_err() else { panic!("{url}") };
        assert_eq!(invalid.what(), "credentials", "{invalid}");
        assert!(!invalid.to_string().contains("hunter2"), "{invalid}");
    }
}

#[test]
fn no_text_shows_what_the_function_returns() {
    let server = own!(Server::private_tcp(&[]));
    rotate(&server, "first");
    let vault = Vault::with("hunter2");
    let url = format!("redis://{USER}@{}", server.address());
    let builder = asking(Gate::builder(&url), &vault);
    let credentials = Credentials::user(USER, "hunter2");
    assert!(format!("{credentials:?}").contains(USER));
    let mut shown = format!("{builder:?} {credentials:?} {credentials:#?}");
    let error = builder.open().unwrap_err();
    shown += &format!("{error} {error:?}");
    vault.store("first");
    let gate = asking(Gate::builder(&url), &vault).open().unwrap();
    rotate(&server, "second");
    let error = gate.mutex("m").try_lock().unwrap_err();
    shown += &format!("{gate:?} {error} {error:?}");
    assert!(!["hunter2", "first", "second"].iter().any(|secret| shown.contains(secret)), "{shown}");
}
