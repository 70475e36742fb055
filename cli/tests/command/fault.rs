//! While the server is stopped, killed or silent, the limit is never exceeded: by a record of every start and
//! end.

use super::tool::{Run, Text, luagate, words};
use crate::support::proxy::Proxy;
use crate::support::random::Random;
use crate::support::{Server, eventually, process};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMIT: usize = 3;
const RUNS: usize = 10;
/// How long some commands run, in ms.
const LONG: u64 = 8_000;
const LEASE: Duration = Duration::from_secs(3);

/// The monotonic clock, in ns.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A process of a command: writes its start, and again and again that it is still running.
pub fn work(job: &str, arguments: &[String]) {
    let (folder, time) = (&arguments[0], Duration::from_millis(arguments[1].parse().unwrap()));
    assert_eq!(job, "beat");
    let id = std::env::var("LUAGATE_ID").unwrap().replace('/', "_");
    let name = format!("{id}.{}.{}", arguments[1], std::process::id());
    let file = std::fs::File::create(Path::new(folder).join(name)).unwrap();
    let begun = now();
    while now() - begun < time.as_nanos() as u64 {
        file.write_all_at(&[begun.to_le_bytes(), now().to_le_bytes()].concat(), 0).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// For each permit and the time that its command takes, when the first process of its command began and when
/// the last one was still running.
fn record(folder: &Path) -> BTreeMap<String, (u64, u64)> {
    let mut intervals: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let bytes = std::fs::read(entry.path()).unwrap();
        let Some((begun, last)) = bytes.split_at_checked(8).filter(|(_, last)| last.len() == 8) else {
            continue;
        };
        let [begun, last] = [begun, last].map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        let name = entry.file_name().into_string().unwrap();
        let (id_and_time, _) = name.rsplit_once('.').unwrap();
        let interval = intervals.entry(id_and_time.to_owned()).or_insert((begun, last));
        *interval = (interval.0.min(begun), interval.1.max(last));
    }
    intervals
}

/// The largest number of permits whose processes ran at the same time.
fn most_at_once(intervals: &BTreeMap<String, (u64, u64)>) -> usize {
    let at = |time: u64| intervals.values().filter(|(begun, last)| (*begun..=*last).contains(&time)).count();
    intervals.values().map(|(begun, _)| at(*begun)).max().unwrap_or(0)
}

#[test]
fn the_record_shows_an_exceeded_limit() {
    let intervals = [("a", 1, 5), ("b", 5, 9), ("c", 6, 7), ("d", 8, 8)]
        .map(|(id, begun, last)| (id.to_owned(), (begun, last)));
    assert_eq!(most_at_once(&intervals.into()), 2);
}

/// A command under a permit, which writes that it runs. It ignores TERM, and starts a process that does so
/// too.
pub fn run(server: &Server, folder: &Path, random: &mut Random, options: &str) -> std::process::Command {
    // Some commands do not end by themselves before their lease would.
    let time = if random.below(3) == 0 { LONG } else { 300 + random.below(1_000) }.to_string();
    let beat = process("beat", &[folder.to_str().unwrap(), &time]);
    let mut run = luagate(server);
    run.args(["run", "-q", "-n", &LIMIT.to_string()]).args(words(options)).args(words("fault -- sh -c"));
    run.arg("trap '' TERM; \"$@\" & exec \"$@\"").arg("sh").arg(beat.get_program()).args(beat.get_args());
    let variables = beat.get_envs().filter_map(|(name, value)| Some((name, value?)));
    run.envs(variables);
    run
}

/// Runs commands one after the other until the end.
fn keep_running(
    server: &Server,
    folder: &Path,
    seed: u64,
    is_over: &AtomicBool,
    statuses: &Mutex<BTreeMap<i32, u32>>,
) {
    let mut random = Random::new(seed);
    while !is_over.load(Ordering::Relaxed) {
        let ended = run(server, folder, &mut random, "--lease 3s -w 20s").done();
        *statuses.lock().unwrap().entry(ended.code()).or_default() += 1;
        assert!([0, 69, 75, 79].contains(&ended.code()), "{ended:?}");
    }
}

/// Asserts that no more than the limit ran at once. Returns how many were granted.
pub fn assert_limit(folder: &Path) -> usize {
    let intervals = record(folder);
    let most = most_at_once(&intervals);
    assert!(most <= LIMIT, "{most} at once of {LIMIT}: {intervals:?}");
    intervals.len()
}

/// Ten runs during a fault, and for a while before and after it.
fn during(target: &Server, server: &mut Server, fault: impl FnOnce(&mut Server)) {
    let folder = tempfile::tempdir().unwrap();
    let (is_over, statuses) = (AtomicBool::new(false), Mutex::default());
    std::thread::scope(|scope| {
        for number in 0..RUNS {
            let (folder, is_over, statuses) = (folder.path(), &is_over, &statuses);
            scope.spawn(move || keep_running(target, folder, number as u64, is_over, statuses));
        }
        let grants = || record(folder.path()).len();
        let more = |count: usize| {
            let before = grants();
            let begun = Instant::now();
            while grants() < before + count {
                assert!(begun.elapsed() < Duration::from_secs(60), "no {count} grants within a minute");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        more(2 * LIMIT);
        // A command that does not end by itself has just begun.
        eventually("a long command", || {
            let has_begun = |(id, (begun, _)): (&String, &(u64, u64))| {
                id.ends_with(&format!(".{LONG}")) && now() - begun < Duration::from_secs(1).as_nanos() as u64
            };
            record(folder.path()).iter().any(has_begun).then_some(())
        });
        fault(server);
        more(2 * LIMIT);
        is_over.store(true, Ordering::Relaxed);
    });
    assert_limit(folder.path());
    let statuses = statuses.into_inner().unwrap();
    assert!(statuses.get(&79).is_some_and(|count| *count > 0), "no command was ended: {statuses:?}");
}

/// A server that remembers everything after a restart.
pub fn server() -> Option<Server> {
    Server::private_tcp(&["--appendonly", "yes", "--appendfsync", "always"])
}

/// Long enough that all leases end.
fn outage() {
    std::thread::sleep(LEASE + Duration::from_millis(500));
}

#[test]
fn while_the_server_is_stopped() {
    let mut server = crate::own!(server());
    let target = target(&server, server.url.clone());
    during(&target, &mut server, |server| {
        server.pause();
        outage();
        server.resume();
    });
}

#[test]
fn while_the_server_is_killed_and_started_again() {
    let mut server = crate::own!(server());
    let target = target(&server, server.url.clone());
    during(&target, &mut server, |server| {
        server.kill();
        outage();
        server.start_again();
    });
}

#[test]
fn behind_a_silent_proxy() {
    let mut server = crate::own!(server());
    let proxy = Proxy::new(&server);
    let target = target(&server, proxy.url.clone());
    during(&target, &mut server, |server| {
        proxy.go_silent();
        proxy.refuse();
        outage();
        proxy.lead_to(server);
    });
}

/// How the runs see a server.
pub fn target(server: &Server, url: String) -> Server {
    Server::at(url, server.prefix.clone())
}
