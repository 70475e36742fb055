//! Promise: for any bytes from the server's address, every call returns in time with a typed error or with
//! what a complete reply said. No thread panics, and no permit is held that was not granted.

use crate::fuzz;

use luagate::{Gate, Lease};
use proptest::prelude::*;
use proptest::sample::select;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// The read timeout.
const TIMEOUT: Duration = Duration::from_millis(40);

/// The maximum duration of a call: several replies on a busy machine. Only a hang takes longer.
const BOUND: Duration = Duration::from_secs(20);

/// How the server answers a command.
#[derive(Clone, Debug)]
enum Act {
    /// As in the contract; `acquire` is granted.
    Well,
    Send(Vec<u8>),
    /// A part of a reply, then the connection is closed.
    Part(Vec<u8>, usize),
    Close,
    Silent,
}

/// A server that answers each command by the next act of a list, and starts again after the last one.
struct Hostile {
    url: String,
    state: Arc<State>,
}

struct State {
    acts: Vec<Act>,
    at: AtomicUsize,
    /// The number of valid grants sent.
    granted: AtomicUsize,
    over: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Hostile {
    fn new(acts: Vec<Act>) -> Hostile {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let state = Arc::new(State {
            acts,
            at: AtomicUsize::new(0),
            granted: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.over.load(Ordering::SeqCst) {
                    return;
                }
                let state = shared.clone();
                shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Hostile { url, state }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        let address = self.url.trim_start_matches("redis://").trim_end_matches('/');
        drop(TcpStream::connect(address)); // wakes the thread that accepts
        for stream in self.state.streams.lock().unwrap().iter() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn serve(mut stream: TcpStream, state: &State) {
    let mut call = vec![0; 65_536];
    while let Ok(count @ 1..) = stream.read(&mut call) {
        let call = &call[..count];
        let at = state.at.fetch_add(1, Ordering::SeqCst);
        let act = match at.checked_sub(1) {
            None => &Act::Well, // the gate opens
            Some(at) => &state.acts[at % state.acts.len()],
        };
        let sent = match act {
            Act::Well => stream.write_all(&well(call, state)),
            Act::Send(bytes) => stream.write_all(bytes),
            Act::Part(bytes, count) => {
                let _ = stream.write_all(&bytes[..(*count).min(bytes.len())]);
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
            Act::Close => return,
            Act::Silent => Ok(()),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// The valid reply to a call.
fn well(call: &[u8], state: &State) -> Vec<u8> {
    let text = String::from_utf8_lossy(call);
    let words: Vec<&str> = text.split("\r\n").filter(|word| !word.starts_with(['$', '*'])).collect();
    match words.first() {
        Some(&"PING") => b"+PONG\r\n".to_vec(),
        Some(&"SUBSCRIBE") => {
            format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{}\r\n:1\r\n", words[1].len(), words[1]).into_bytes()
        }
        Some(&"PUBSUB") => format!("*2\r\n${}\r\n{}\r\n:1\r\n", words[2].len(), words[2]).into_bytes(),
        // With seven arguments, the fourth of which is the lease: acquire.
        Some(&"EVALSHA") if words.len() == 14 && words[2] == "3" && words[9].parse::<u64>().is_ok() => {
            state.granted.fetch_add(1, Ordering::SeqCst);
            let end = 1_700_000_000_000 + words[9].parse::<u64>().unwrap_or_default();
            format!("*7\r\n$7\r\ngranted\r\n:1\r\n:7\r\n:{end}\r\n:1700000000000\r\n:1\r\n:3\r\n")
                .into_bytes()
        }
        Some(&"EVALSHA") => b"*4\r\n$8\r\nreleased\r\n:0\r\n:0\r\n:3\r\n".to_vec(),
        _ => b"+OK\r\n".to_vec(),
    }
}

fn bytes() -> BoxedStrategy<Vec<u8>> {
    let some = [
        "*-1\r\n",
        "*-2\r\n",
        "$-2\r\n",
        "*9223372036854775807\r\n",
        "*2147483647\r\n:1\r\n",
        "$9223372036854775807\r\nx",
        "$536870912\r\nx",
        "$18446744073709551616\r\n",
        "%1\r\n",
        "*\r\n",
        "$\r\n",
        ":\r\n",
        ":9223372036854775808\r\n",
        "+\r\n",
        "-\r\n",
        "_\r\n",
        "(1\r\n",
        "!3\r\nERR\r\n",
        "=7\r\ntxt:abc\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "\r\n",
        "\0",
        "-NOSCRIPT x\r\n",
        "-MOVED 1 127.0.0.1:1\r\n",
        "-LOADING x\r\n",
        "-LUAGATE \r\n",
        "-LUAGATE a: b\r\n",
        "*6\r\n$6\r\nqueued\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        "*7\r\n$6\r\nqueued\r\n:9\r\n:1\r\n:0\r\n:1\r\n:3\r\n:0\r\n",
        "*6\r\n$6\r\ndenied\r\n:0\r\n:3\r\n:3\r\n:0\r\n:1\r\n",
        "*2\r\n$4\r\nlost\r\n:1\r\n",
        "*1\r\n$4\r\ngone\r\n",
        "*7\r\n$7\r\ngranted\r\n:1\r\n:7\r\n:0\r\n:0\r\n:1\r\n:3\r\n",
        "*7\r\n$7\r\ngranted\r\n:1\r\n:7\r\n:-1\r\n:1\r\n:1\r\n:3\r\n",
        "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$13\r\nid 1 9 -1 100\r\n",
        "*3\r\n$7\r\nmessage\r\n:1\r\n:1\r\n",
        "*4\r\n$8\r\npmessage\r\n$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n",
    ];
    prop_oneof![
        4 => select(some.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        4 => fuzz::value().prop_map(|value| fuzz::encode(&value)),
        1 => proptest::collection::vec(any::<u8>(), 1..64),
        1 => (1..200_000_usize).prop_map(|depth| b"*1\r\n".repeat(depth)),
        1 => proptest::collection::vec(fuzz::value(), 2..5).prop_map(|all| all.iter().flat_map(fuzz::encode).collect()),
    ]
    .boxed()
}

fn acts() -> BoxedStrategy<Vec<Act>> {
    let act = prop_oneof![
        6 => bytes().prop_map(Act::Send),
        3 => Just(Act::Well),
        1 => (bytes(), 0..40_usize).prop_map(|(bytes, count)| Act::Part(bytes, count)),
        1 => Just(Act::Close),
        1 => Just(Act::Silent),
    ];
    proptest::collection::vec(act, 1..12).boxed()
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Runs the calls in a thread, to detect a hang. `Ok` contains the number of permits received.
fn use_client(url: &str) -> Result<usize, String> {
    let url = url.to_owned();
    let (says, hears) = mpsc::channel();
    let now = Arc::new(Mutex::new("open"));
    let at = now.clone();
    std::thread::spawn(move || {
        let _ = says.send(call_everything(&url, &at));
    });
    // Longer than all calls together may take.
    match hears.recv_timeout(BOUND * 4) {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("{} hangs or panics", now.lock().unwrap())),
    }
}

fn call_everything(url: &str, now: &Mutex<&'static str>) -> Result<usize, String> {
    let opened =
        Gate::builder(url).connect_timeout(TIMEOUT * 10).read_timeout(TIMEOUT).outage_timeout(TIMEOUT).open();
    let Ok(gate) = opened else { return Ok(0) };
    let semaphore = gate.semaphore("any", 3).lease(Lease::fixed(Duration::from_secs(60)));
    let mut permits = Vec::new();
    let mut slow = Ok(());
    let mut timed = |name: &'static str, call: &mut dyn FnMut()| {
        *now.lock().unwrap() = name;
        let begun = Instant::now();
        call();
        if begun.elapsed() > BOUND {
            slow = Err(format!("{name} took {:?}", begun.elapsed()));
        }
    };
    timed("try_acquire", &mut || permits.extend(semaphore.try_acquire()));
    timed("acquire_timeout", &mut || permits.extend(semaphore.acquire_timeout(TIMEOUT)));
    timed("acquire_timeout with an own id", &mut || {
        permits.extend(semaphore.clone().id("own").acquire_timeout(TIMEOUT));
    });
    timed("permanent", &mut || permits.extend(semaphore.clone().lease(Lease::PERMANENT).try_acquire()));
    timed("refresh", &mut || permits.iter().for_each(|permit| drop(permit.refresh())));
    timed("available_permits", &mut || drop(semaphore.available_permits()));
    timed("inspect", &mut || drop(semaphore.inspect()));
    timed("resize", &mut || drop(semaphore.resize(4)));
    timed("revoke", &mut || drop(semaphore.revoke("id")));
    timed("adopt", &mut || drop(semaphore.adopt("id").map(luagate::Permit::into_id)));
    timed("lock", &mut || drop(gate.mutex("any").try_lock()));
    timed("try_acquire_several", &mut || drop(gate.mutexes(["{g}:a", "{g}:b"]).try_acquire()));
    timed("acquire_several", &mut || drop(gate.mutexes(["a", "b"]).acquire_timeout(TIMEOUT)));
    timed("count_down", &mut || drop(gate.latch("any", 2).count_down()));
    timed("wait", &mut || drop(gate.latch("any", 2).wait_timeout(TIMEOUT)));
    let had = permits.len();
    timed("release", &mut || permits.drain(..).for_each(|permit| drop(permit.release())));
    slow.map(|()| had)
}

#[test]
fn random_replies_cause_typed_errors_and_no_permit_that_was_not_granted() {
    // Detects panics in the client's own threads. `use_client` detects one in the thread of the calls.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        if thread.starts_with("luagate") {
            PANICS.lock().unwrap().push(format!("{thread}: {info}"));
        }
        usual(info);
    }));
    let with_permits = std::cell::Cell::new(0);
    proptest!(fuzz::cases(60), |(acts in acts())| {
        let server = Hostile::new(acts);
        let had = use_client(&server.url).map_err(TestCaseError::fail)?;
        let granted = server.state.granted.load(Ordering::SeqCst);
        prop_assert!(had <= granted, "{} permits of {} grants", had, granted);
        with_permits.set(with_permits.get() + usize::from(had > 0));
        let panics = PANICS.lock().unwrap();
        prop_assert!(panics.is_empty(), "{:?}", panics);
    });
    assert!(with_permits.get() > 0, "no case returned a permit");
}
