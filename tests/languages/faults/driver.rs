//! A running driver: it gets commands, and its replies arrive in any order.

use super::client::Client;
use super::support::leftovers::{MARK, mark};
use super::support::{SOON, pause, signal, within};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The longest time for a reply that should come soon: a virtual machine starts slowly on a busy machine.
const BOUND: Duration = SOON.saturating_mul(3);

/// The end of a call.
#[derive(Clone, Debug)]
pub struct Reply {
    pub word: String,
    fields: BTreeMap<String, String>,
    received: Instant,
}

impl Reply {
    fn read(words: &str) -> Option<(String, Reply)> {
        let received = Instant::now();
        let mut words = words.split(' ');
        let (call, word) = (words.next()?.to_owned(), words.next()?.to_owned());
        let fields =
            words.filter_map(|word| word.split_once('=')).map(|(key, value)| (key.to_owned(), decode(value)));
        let reply = Reply { word, fields: fields.collect(), received };
        Some((call, reply))
    }

    /// A field, or nothing.
    pub fn get(&self, key: &str) -> &str {
        self.fields.get(key).map_or("", String::as_str)
    }

    #[track_caller]
    pub fn number(&self, key: &str) -> u64 {
        self.get(key).parse().unwrap_or_else(|_| panic!("no number {key}: {self:?}"))
    }

    #[track_caller]
    pub fn expect(&self, word: &str) -> &Reply {
        assert_eq!(self.word, word, "{self:?}");
        self
    }

    #[track_caller]
    pub fn is_error(&self, kind: &str) -> &Reply {
        assert!(self.word == "error" && self.get("kind") == kind, "expected the error {kind}: {self:?}");
        self
    }
}

/// A call that may still run.
#[derive(Clone)]
pub struct Call {
    name: String,
    text: String,
    sent: Instant,
}

#[derive(Default)]
struct Said {
    replies: BTreeMap<String, Reply>,
    events: Vec<String>,
    has_ended: bool,
}

pub struct Driver {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Arc<(Mutex<Said>, Condvar)>,
    calls: usize,
    /// All gates that it opened.
    gates: BTreeSet<String>,
    /// Another test must not use it: it was paused, or ran a command that concerns the whole process. In Rust
    /// a permit outlives `close`.
    is_used_up: bool,
}

/// The commands that change the whole process, or look at it.
const OF_THE_PROCESS: [&str; 6] = ["exit", "fork", "interrupts", "interrupts_everywhere", "loop", "threads"];

impl Driver {
    /// Starts the driver of a client, with nothing opened.
    pub fn start(client: &Client) -> Driver {
        let mut driver = Driver::spawn(client.command());
        driver.is_used_up = client.is_rust();
        driver
    }

    /// Starts it by the command of a client.
    pub fn spawn(mut command: Command) -> Driver {
        command.env(MARK, mark()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = Arc::<(Mutex<Said>, Condvar)>::default();
        let hears = said.clone();
        std::thread::spawn(move || {
            let (said, changed) = &*hears;
            for line in lines.map_while(Result::ok) {
                let mut said = said.lock().unwrap();
                match line.strip_prefix("! ") {
                    Some(event) => said.events.push(event.to_owned()),
                    None => said.replies.extend(Reply::read(&line)),
                }
                changed.notify_all();
            }
            said.lock().unwrap().has_ended = true;
            changed.notify_all();
        });
        Driver { child, stdin, said, calls: 0, gates: BTreeSet::new(), is_used_up: false }
    }

    /// Sends a command, and does not wait for its end.
    pub fn send(&mut self, text: impl Into<String>) -> Call {
        self.calls += 1;
        let call = Call { name: self.calls.to_string(), text: text.into(), sent: Instant::now() };
        let mut words = call.text.split(' ');
        let verb = words.next().unwrap_or_default();
        self.is_used_up |= OF_THE_PROCESS.contains(&verb);
        if verb == "open" {
            self.gates.extend(words.find_map(|word| word.strip_prefix("gate=")).map(str::to_owned));
        }
        writeln!(self.stdin.as_ref().expect("an open input"), "{} {}", call.name, call.text).unwrap();
        call
    }

    /// The end of a call, if it ends within this time.
    pub fn ends_within(&self, call: &Call, time: Duration) -> Option<Reply> {
        let (said, changed) = &*self.said;
        let goes_on = |said: &mut Said| !said.replies.contains_key(&call.name) && !said.has_ended;
        let (said, _) = changed.wait_timeout_while(said.lock().unwrap(), time, goes_on).unwrap();
        said.replies.get(&call.name).cloned()
    }

    /// The end of a call, and how long it ran.
    #[track_caller]
    pub fn end(&self, call: &Call) -> (Reply, Duration) {
        let reply = self.ends_within(call, BOUND);
        let reply =
            reply.unwrap_or_else(|| panic!("no reply after {:?}: {}", call.sent.elapsed(), call.text));
        let time = reply.received - call.sent;
        (reply, time)
    }

    #[track_caller]
    pub fn call(&mut self, text: impl Into<String>) -> Reply {
        let call = self.send(text);
        self.end(&call).0
    }

    /// Cancels a call in the way of the language.
    #[track_caller]
    pub fn cancel(&mut self, call: &Call) {
        self.call(format!("cancel call={}", call.name)).expect("done");
    }

    /// Waits until it has said `! EVENT`.
    #[track_caller]
    pub fn says(&self, event: &str) {
        let (said, changed) = &*self.said;
        let silent = |said: &mut Said| !said.events.iter().any(|one| one == event) && !said.has_ended;
        let (said, _) = changed.wait_timeout_while(said.lock().unwrap(), BOUND, silent).unwrap();
        assert!(
            said.events.iter().any(|one| one == event),
            "the driver did not say {event}: {:?}",
            said.events
        );
    }

    /// Waits until the loss of the permit of this call of `use` was reported.
    #[track_caller]
    pub fn says_lost(&self, call: &Call) {
        self.says(&format!("lost {}", call.name));
    }

    /// Waits until the work of this call of `use` runs.
    #[track_caller]
    pub fn works(&self, call: &Call) {
        self.says(&format!("working {}", call.name));
    }

    /// Closes its input. Returns whether it then ended by itself, and well, within this time.
    pub fn ends_itself(&mut self, time: Duration) -> bool {
        drop(self.stdin.take());
        within(time, || self.child.try_wait().unwrap()).is_some_and(|status| status.success())
    }

    /// Closes all gates and their clients. Returns whether each did so within this time, and another test can
    /// use the driver.
    pub fn closes_all(&mut self, time: Duration) -> bool {
        if self.is_used_up || self.stdin.is_none() || self.said.0.lock().unwrap().replies.len() < self.calls {
            return false;
        }
        std::mem::take(&mut self.gates).iter().all(|gate| {
            ["close", "close_client"].iter().all(|verb| {
                let call = self.send(format!("{verb} gate={gate}"));
                self.ends_within(&call, time).is_some_and(|reply| reply.word == "done")
            })
        })
    }

    /// Stops the process, as a pause of its machine does.
    pub fn pause(&mut self) {
        self.is_used_up = true;
        pause(self.child.id());
    }

    pub fn resume(&self) {
        signal("-CONT", self.child.id());
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A percent-encoded value.
pub fn decode(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|digit| (digit as char).to_digit(16));
        bytes.push(match byte {
            b'%' => (digit().unwrap_or(0) * 16 + digit().unwrap_or(0)) as u8,
            byte => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The percent-encoded form of a value.
pub fn encode(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%' && byte != b'=';
    let encoded = value
        .bytes()
        .map(|byte| if plain(byte) { (byte as char).to_string() } else { format!("%{byte:02x}") });
    encoded.collect()
}
