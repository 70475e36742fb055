//! The driver of the Rust library. Both forms of the API run the same commands: `rust` with the blocking
//! methods, and `rust_async` with futures on a runtime.

use super::driver::{decode, encode};
use luagate::errors::{CallError, Denied, Failure, FailureKind, ReleaseError, RunError};
use luagate::inspection::Inspection;
use luagate::{
    Cancel, Counters, Error, Gate, Lease, Permit, Released, Resized, Revoked, Semaphore, SeveralPermits,
};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

/// The names of the two forms.
pub const THREADS: &str = "rust driver";
pub const TASKS: &str = "rust_async driver";

/// As good as no timeout.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

struct Keys<'a>(Vec<(&'a str, String)>);

impl<'a> Keys<'a> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| &**value)
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get(key).and_then(|value| value.parse().ok())
    }

    fn duration(&self, key: &str) -> Option<Duration> {
        self.number(key).map(Duration::from_millis)
    }

    /// The keys of each want.
    fn wants(&self) -> Vec<Keys<'a>> {
        let mut wants: Vec<Keys> = Vec::new();
        for (key, value) in &self.0 {
            if *key == "name" {
                wants.push(Keys(Vec::new()));
            }
            if let Some(want) = wants.last_mut() {
                want.0.push((key, value.clone()));
            }
        }
        wants
    }
}

/// The permits that a call acquired.
enum Held {
    One(Permit),
    Several(SeveralPermits),
}

impl Held {
    fn each(&self) -> Vec<&Permit> {
        match self {
            Held::One(permit) => vec![permit],
            Held::Several(permits) => permits.iter().map(|(_, permit)| permit).collect(),
        }
    }

    fn granted(&self) -> String {
        let list = |number: fn(&Permit) -> u64| {
            self.each().into_iter().map(|permit| number(permit).to_string()).collect::<Vec<_>>().join(",")
        };
        let fences = list(Permit::fence);
        let (permits, limits) =
            (list(|permit| permit.permits().into()), list(|permit| permit.limit().unwrap_or(0).into()));
        format!("granted id={} fence={fences} permits={permits} limit={limits}", encode(self.each()[0].id()))
    }
}

/// Cancels a call.
enum Canceller {
    /// The call was read, and has not begun.
    New,
    Cancelled,
    Thread(Cancel),
    Task(AbortHandle),
}

#[derive(Clone)]
struct Program {
    /// Only the async form has one.
    runtime: Option<Arc<Runtime>>,
    gates: Arc<Mutex<BTreeMap<String, Gate>>>,
    held: Arc<Mutex<BTreeMap<String, Arc<Held>>>>,
    calls: Arc<Mutex<BTreeMap<String, Canceller>>>,
}

/// The reply to a call, or its error.
type Answer = Result<String, String>;

/// Runs the commands of the standard input.
pub fn drive(form: &str) {
    let runtime = (form == TASKS).then(|| Arc::new(Runtime::new().unwrap()));
    let program = Program { runtime, gates: Arc::default(), held: Arc::default(), calls: Arc::default() };
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let program = program.clone();
        if line.split(' ').nth(1) == Some("exit") {
            print(&line, "done");
            break;
        }
        let call = line.split(' ').next().unwrap_or_default().to_owned();
        program.calls.lock().unwrap().insert(call, Canceller::New);
        std::thread::spawn(move || {
            let answer = program.answer(&line).unwrap_or_else(|error| error);
            print(&line, &answer);
        });
    }
}

fn print(line: &str, answer: &str) {
    let call = line.split(' ').next().unwrap_or_default();
    let _ = writeln!(std::io::stdout().lock(), "{call} {answer}");
}

impl Program {
    /// From now on, `cancel` ends the call in this way. Returns whether it was cancelled before.
    fn begin(&self, call: &str, canceller: Canceller) -> bool {
        let before = self.calls.lock().unwrap().insert(call.to_owned(), canceller);
        matches!(before, Some(Canceller::Cancelled))
    }

    /// Runs a future to its end, as a task that `cancel` can abort.
    fn run<T: Send + 'static>(
        &self,
        call: &str,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let runtime = self.runtime.as_ref().expect("the async form");
        let task = runtime.spawn(future);
        if self.begin(call, Canceller::Task(task.abort_handle())) {
            task.abort();
        }
        runtime.block_on(task).map_err(|_| "error kind=cancelled".to_owned())
    }

    fn answer(&self, line: &str) -> Answer {
        let mut words = line.split(' ');
        let (call, verb) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let keys = Keys(
            words.filter_map(|word| word.split_once('=')).map(|(key, value)| (key, decode(value))).collect(),
        );
        match verb {
            "open" => self.open(call, &keys),
            "acquire" | "try" => self.keep(call, verb, &keys),
            "refresh" => self.refresh(call, &keys),
            "release" => self.release(call, &keys),
            "state" => self.state(&keys),
            "await_lost" => self.await_lost(&keys),
            "inspect" => self.inspect(call, &keys),
            "revoke" => self.revoke(call, &keys),
            "resize" => self.resize(call, &keys),
            "cancel" => self.cancel(&keys),
            "close" => self.close(call, &keys),
            "threads" => threads(),
            "counters" => Ok(counters_of(&self.gate(&keys)?.counters())),
            "use" => self.use_permit(call, &keys),
            _ => Err(format!("error kind=other message=unknown%20verb%20{verb}")),
        }
    }

    fn open(&self, call: &str, keys: &Keys) -> Answer {
        let url = keys.get("url").unwrap_or_default();
        let url = match (keys.get("cluster"), keys.get("sentinel")) {
            (Some("1"), _) => url.replacen("redis://", "redis+cluster://", 1),
            (_, Some(name)) => {
                let url = url.replacen("redis://", "redis+sentinel://", 1);
                format!("{}/{name}", url.trim_end_matches("/0").trim_end_matches('/'))
            }
            _ => url.to_owned(),
        };
        let builder = Gate::builder(&url);
        let builder = builder.prefix(keys.get("prefix").unwrap_or("luagate"));
        let gate = match &self.runtime {
            None => builder.open(),
            Some(_) => self.run(call, builder.open_async())?,
        };
        let gate = gate.map_err(failed)?;
        self.gates.lock().unwrap().insert(keys.get("gate").unwrap_or_default().to_owned(), gate);
        Ok("done".to_owned())
    }

    fn keep(&self, call: &str, verb: &str, keys: &Keys) -> Answer {
        let held = self.acquire(call, verb, keys)?;
        let granted = held.granted();
        let name = keys.get("permit").unwrap_or_default().to_owned();
        self.held.lock().unwrap().insert(name, Arc::new(held));
        Ok(granted)
    }

    fn refresh(&self, call: &str, keys: &Keys) -> Answer {
        let held = self.held(keys)?;
        match &self.runtime {
            None => match &*held {
                Held::One(permit) => permit.refresh(),
                Held::Several(permits) => permits.refresh(),
            },
            Some(_) => self.run(call, async move {
                match &*held {
                    Held::One(permit) => permit.refresh_async().await,
                    Held::Several(permits) => permits.refresh_async().await,
                }
            })?,
        }
        .map_err(|error| error_of(error.into()))?;
        Ok("refreshed".to_owned())
    }

    fn release(&self, call: &str, keys: &Keys) -> Answer {
        let name = keys.get("permit").unwrap_or_default();
        let Some(held) = self.held.lock().unwrap().remove(name) else {
            return Ok("released held=false".to_owned()); // a permit can be released only once
        };
        let held = Arc::into_inner(held).ok_or("error kind=other message=in%20use")?;
        self.release_held(call, held)
    }

    fn state(&self, keys: &Keys) -> Answer {
        let held = self.held(keys)?;
        let (is_lost, remaining) = match &*held {
            Held::One(permit) => (permit.is_lost(), permit.remaining()),
            Held::Several(permits) => (permits.is_lost(), permits.remaining()),
        };
        let remaining = remaining.map_or("never".to_owned(), |left| left.as_millis().to_string());
        Ok(if is_lost { "lost".to_owned() } else { format!("held remaining={remaining}") })
    }

    fn await_lost(&self, keys: &Keys) -> Answer {
        let held = self.held(keys)?;
        let (sender, lost) = channel();
        // Its own runtime: `lost_async` works on each.
        std::thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            runtime.block_on(async {
                match &*held {
                    Held::One(permit) => permit.lost_async().await,
                    Held::Several(permits) => permits.lost_async().await,
                };
            });
            drop(held); // the next call may need it alone
            let _ = sender.send(());
        });
        let heard = lost.recv_timeout(keys.duration("timeout").unwrap_or(FOR_EVER));
        Ok(if heard == Err(RecvTimeoutError::Timeout) { "held" } else { "lost" }.to_owned())
    }

    fn inspect(&self, call: &str, keys: &Keys) -> Answer {
        let (semaphore, _) = self.semaphore(keys, &keys.wants()[0])?;
        let state = match &self.runtime {
            None => semaphore.inspect(),
            Some(_) => self.run(call, async move { semaphore.inspect_async().await })?,
        };
        Ok(state_of(&state.map_err(failed)?))
    }

    fn revoke(&self, call: &str, keys: &Keys) -> Answer {
        let (semaphore, _) = self.semaphore(keys, &keys.wants()[0])?;
        let id = keys.get("id").unwrap_or_default().to_owned();
        let revoked = match &self.runtime {
            None => semaphore.revoke(&id),
            Some(_) => self.run(call, async move { semaphore.revoke_async(&id).await })?,
        };
        Ok(if revoked.map_err(failed)? == Revoked::Nothing { "gone" } else { "revoked" }.to_owned())
    }

    fn resize(&self, call: &str, keys: &Keys) -> Answer {
        let (semaphore, _) = self.semaphore(keys, &keys.wants()[0])?;
        let to = keys.number("to").unwrap_or(0);
        let resized = match &self.runtime {
            None => semaphore.resize(to),
            Some(_) => self.run(call, async move { semaphore.resize_async(to).await })?,
        };
        match resized.map_err(failed)? {
            Resized::Resized { old, .. } => Ok(format!("resized old={} new={to}", old.unwrap_or(0))),
            Resized::Unchanged { current, .. } => Ok(format!("unchanged current={}", current.unwrap_or(0))),
        }
    }

    fn cancel(&self, keys: &Keys) -> Answer {
        match self.calls.lock().unwrap().get_mut(keys.get("call").unwrap_or_default()) {
            Some(Canceller::Thread(cancel)) => cancel.cancel(),
            Some(Canceller::Task(task)) => task.abort(),
            Some(new) => *new = Canceller::Cancelled,
            None => return Err("error kind=other message=no%20such%20call".to_owned()),
        }
        Ok("done".to_owned())
    }

    fn close(&self, call: &str, keys: &Keys) -> Answer {
        let name = keys.get("gate").unwrap_or_default();
        let gate = self.gates.lock().unwrap().remove(name).ok_or("error kind=closed")?;
        let closed = match &self.runtime {
            None => gate.flush(),
            Some(_) => self.run(call, async move { gate.flush_async().await })?,
        };
        closed.map_err(failed)?;
        Ok("done".to_owned())
    }

    fn gate(&self, keys: &Keys) -> Result<Gate, String> {
        let gates = self.gates.lock().unwrap();
        gates.get(keys.get("gate").unwrap_or_default()).cloned().ok_or_else(|| "error kind=closed".to_owned())
    }

    fn held(&self, keys: &Keys) -> Result<Arc<Held>, String> {
        let held = self.held.lock().unwrap();
        held.get(keys.get("permit").unwrap_or_default()).cloned().ok_or_else(|| "error kind=other".to_owned())
    }

    /// The semaphore of a want, and how many permits it asks for.
    fn semaphore(&self, keys: &Keys, want: &Keys) -> Result<(Semaphore, u32), String> {
        let gate = self.gate(keys)?;
        let name = want.get("name").unwrap_or_default();
        let (mut semaphore, permits) = match want.get("kind") {
            Some("mutex") => own(gate.mutex(name).to_lock()),
            Some("read") => own(gate.rwlock(name).to_read()),
            Some("write") => own(gate.rwlock(name).to_write()),
            _ => {
                (gate.semaphore(name, want.number("limit").unwrap_or(1)), want.number("permits").unwrap_or(1))
            }
        };
        if let Some(lease) = want.get("lease") {
            let ms = |text: &str| Duration::from_millis(text.parse().unwrap_or(0));
            semaphore = semaphore.lease(match lease.strip_suffix('+') {
                _ if lease == "permanent" => Lease::PERMANENT,
                Some(renewed) => Lease::renewed(ms(renewed)),
                None => Lease::fixed(ms(lease)),
            });
        }
        if let Some(most) = want.number("max_waiting") {
            semaphore = semaphore.max_waiting(most);
        }
        if let Some(hold) = want.duration("at_least") {
            semaphore = semaphore.at_least(hold);
        }
        if let Some(by) = want.duration("head_start") {
            semaphore = semaphore.head_start(by);
        }
        if let Some(label) = want.get("label") {
            semaphore = semaphore.label(label);
        }
        if want.get("strict") == Some("1") {
            semaphore = semaphore.strict();
        }
        Ok((semaphore, permits))
    }

    fn acquire(&self, call: &str, verb: &str, keys: &Keys) -> Result<Held, String> {
        let mut wants = Vec::new();
        for want in keys.wants() {
            let (mut semaphore, permits) = self.semaphore(keys, &want)?;
            if keys.get("report") == Some("1") {
                let lost = format!("! lost {call}");
                semaphore = semaphore.on_lost(move |_| drop(writeln!(std::io::stdout().lock(), "{lost}")));
            }
            wants.push((semaphore, permits));
        }
        let timeout = (verb == "acquire").then(|| keys.duration("timeout").unwrap_or(FOR_EVER));
        if self.runtime.is_none() {
            let cancel = Cancel::new();
            if self.begin(call, Canceller::Thread(cancel.clone())) {
                cancel.cancel();
            }
            for (semaphore, _) in &mut wants {
                *semaphore = semaphore.clone().cancelled_by(&cancel);
            }
        }
        if let [(semaphore, permits)] = &wants[..] {
            let (semaphore, permits) = (semaphore.clone(), *permits);
            let permit = match (&self.runtime, timeout) {
                (None, None) => semaphore.try_acquire_many(permits).map_err(Error::from),
                (None, Some(timeout)) => {
                    semaphore.acquire_many_timeout(permits, timeout).map_err(Error::from)
                }
                (Some(_), None) => self.run(call, async move {
                    semaphore.try_acquire_many_async(permits).await.map_err(Error::from)
                })?,
                (Some(_), Some(timeout)) => self.run(call, async move {
                    semaphore.acquire_many_timeout_async(permits, timeout).await.map_err(Error::from)
                })?,
            };
            return permit.map(Held::One).map_err(error_of);
        }
        let several =
            self.gate(keys)?.several(wants.iter().map(|(semaphore, permits)| (semaphore, *permits)));
        let permits =
            match (&self.runtime, timeout) {
                (None, None) => several.try_acquire().map_err(Error::from),
                (None, Some(timeout)) => several.acquire_timeout(timeout).map_err(Error::from),
                (Some(_), None) => {
                    self.run(call, async move { several.try_acquire_async().await.map_err(Error::from) })?
                }
                (Some(_), Some(timeout)) => self.run(call, async move {
                    several.acquire_timeout_async(timeout).await.map_err(Error::from)
                })?,
            };
        permits.map(Held::Several).map_err(error_of)
    }

    fn release_held(&self, call: &str, held: Held) -> Answer {
        fn answer<P>(released: Result<Released, ReleaseError<P>>) -> Answer {
            let released = released.map_err(|error| failed_text(error.error()))?;
            Ok(format!("released held={}", released == Released::Released))
        }
        match (held, &self.runtime) {
            (Held::One(permit), None) => answer(permit.release()),
            (Held::One(permit), Some(_)) => answer(self.run(call, permit.release_async())?),
            (Held::Several(permits), None) => answer(permits.release()),
            (Held::Several(permits), Some(_)) => answer(self.run(call, permits.release_async())?),
        }
    }

    /// The blocking form has no method for it.
    fn use_permit(&self, call: &str, keys: &Keys) -> Answer {
        let hold = keys.duration("hold").unwrap_or_default();
        let returns = keys.get("work") != Some("error");
        let working = format!("! working {call}");
        let answer = if returns { "returned value=work" } else { "raised" }.to_owned();
        let check = keys.get("check") == Some("1");
        if self.runtime.is_none() || !check {
            let held = self.acquire(call, "acquire", keys)?;
            let _ = writeln!(std::io::stdout().lock(), "{working}");
            std::thread::sleep(hold);
            if !check {
                drop(held);
                return Ok(answer);
            }
            let is_lost =
                self.release_held(call, held).is_ok_and(|released| released == "released held=false");
            return if is_lost && returns { Err("error kind=lost".to_owned()) } else { Ok(answer) };
        }
        let (semaphore, _) = self.semaphore(keys, &keys.wants()[0])?;
        let timeout = keys.duration("timeout").unwrap_or(FOR_EVER);
        let ran = self.run(call, async move {
            let work = async |_: &Permit| {
                let _ = writeln!(std::io::stdout().lock(), "{working}");
                tokio::time::sleep(hold).await;
            };
            semaphore.run_async(timeout, work).await
        })?;
        match ran {
            Ok(()) => Ok(answer),
            Err(RunError::Lost(_)) => Err("error kind=lost".to_owned()),
            Err(RunError::NotAcquired(error)) => Err(error_of(error.into())),
            Err(error) => Err(error_of(error.into())),
        }
    }
}

/// The number of threads of this process.
fn threads() -> Answer {
    let tasks = std::fs::read_dir("/proc/self/task").map_err(|_| "error kind=other")?;
    Ok(format!("done count={}", tasks.count()))
}

fn own((semaphore, permits): (&Semaphore, u32)) -> (Semaphore, u32) {
    (semaphore.clone(), permits)
}

fn counters_of(counters: &Counters) -> String {
    let Counters { waited, line_full, granted, denied, lost, renewed, reconnects, .. } = counters;
    format!(
        "counters waited={waited} line_full={line_full} granted={granted} denied={denied} lost={lost} \
         renewed={renewed} reconnects={reconnects}"
    )
}

fn state_of(state: &Inspection) -> String {
    let holders: Vec<_> = state.holders.iter().map(|holder| encode(&holder.id)).collect();
    let waiters: Vec<_> = state.waiters.iter().map(|waiter| encode(&waiter.id)).collect();
    let (limit, in_use, waiting) = (state.limit.unwrap_or(0), state.in_use, state.waiter_count);
    let labels: Vec<_> = state.holders.iter().map(|holder| encode(holder.label().unwrap_or(""))).collect();
    let (holders, waiters, labels) = (holders.join(","), waiters.join(","), labels.join(","));
    format!(
        "state limit={limit} in_use={in_use} waiting={waiting} holders={holders} waiters={waiters} labels={labels}"
    )
}

fn failed(error: CallError) -> String {
    error_of(error.into())
}

fn failed_text(error: &CallError) -> String {
    let kind = match error {
        CallError::Failed(failure) | CallError::Unknown(failure) => kind_of(failure),
        _ => "other",
    };
    format!("error kind={kind} message={}", encode(&error.to_string()))
}

fn kind_of(failure: &Failure) -> &'static str {
    match failure.kind() {
        FailureKind::Permission | FailureKind::Authentication => "permission",
        FailureKind::Unreachable | FailureKind::Disconnected | FailureKind::TimedOut => "unreachable",
        _ => "server",
    }
}

fn error_of(error: Error) -> String {
    let usage = |denied: &Denied| {
        let next = denied.next_expiry.map_or(-1, |after| after.as_millis() as i64);
        format!(
            " in_use={} limit={} waiting={} next_expiry={next}",
            denied.in_use, denied.limit, denied.waiting
        )
    };
    let (kind, more) = match &error {
        Error::TimedOut(denied) => ("timed_out", usage(denied)),
        Error::Denied(denied) => ("denied", usage(denied)),
        Error::LineFull(denied) => ("full", usage(denied)),
        Error::AboveLimit(above) => ("above_limit", format!(" limit={}", above.limit)),
        Error::LimitMismatch(other) => ("limit_mismatch", format!(" limit={}", other.in_force)),
        Error::Lost(_) => ("lost", String::new()),
        Error::Revoked(_) => ("revoked", String::new()),
        Error::Cancelled(_) => ("cancelled", String::new()),
        Error::Invalid(_) => ("invalid", String::new()),
        Error::Failed(failure) | Error::Unknown(failure) => (kind_of(failure), String::new()),
        _ => ("other", String::new()),
    };
    let logged = encode(&format!("{error:?}"));
    format!("error kind={kind}{more} message={} logged={logged}", encode(&error.to_string()))
}
