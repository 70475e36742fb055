//! KILL, STOP and CONT of every process, while the server is stopped, killed and silent: the limit is never
//! exceeded. Of each `luagate run` either the guard is attacked, or the other processes are: the page of the
//! command names what both together can lead to.

use super::fault::{assert_limit, run, server, target};
use super::tool::{Text, signal_to};
use crate::support::Server;
use crate::support::proxy::Proxy;
use crate::support::random::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

const RUNS: u64 = 10;

/// The running `luagate run`, and whether its guard is attacked.
type Targets = Mutex<BTreeMap<u32, bool>>;

/// The guard acts a sixteenth of the lease before its end: on a loaded machine it needs this time.
const LEASE: &str = "4s";
/// The longest time without a process that runs, in ms: longer than the lease.
const PAUSE: u64 = 6_000;

fn keep_running(server: &Server, folder: &Path, seed: u64, targets: &Targets, is_over: &AtomicBool) {
    let mut random = Random::new(seed);
    while !is_over.load(Ordering::Relaxed) {
        let mut command = run(server, folder, &mut random, &format!("--lease {LEASE} -w 20s"));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        targets.lock().unwrap().insert(child.id(), random.below(2) == 0);
        child.wait().unwrap();
        targets.lock().unwrap().remove(&child.id());
    }
}

/// All processes below one, with their names.
fn below(process: u32) -> Vec<(u32, String)> {
    let list = Command::new("ps").args(["-e", "-o", "pid=,ppid=,comm="]).output().unwrap().out();
    let all: Vec<(u32, u32, &str)> = list
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?))
        })
        .collect();
    let (mut found, mut next) = (Vec::new(), vec![process]);
    while let Some(parent) = next.pop() {
        for (id, _, name) in all.iter().filter(|(_, above, _)| *above == parent) {
            found.push((*id, (*name).to_owned()));
            next.push(*id);
        }
    }
    found
}

/// Sends signals until the end. Each process that is stopped is continued, soon or a little later.
fn attack(random: &mut Random, targets: &Targets, is_over: &AtomicBool, attacks: &AtomicUsize) {
    let mut stopped: Vec<(Instant, u32)> = Vec::new();
    loop {
        let is_last = is_over.load(Ordering::Relaxed);
        stopped.retain(|(until, process)| {
            let goes_on = is_last || *until <= Instant::now();
            if goes_on {
                signal_to(*process, "CONT");
            }
            !goes_on
        });
        if is_last {
            return;
        }
        sleep(Duration::from_millis(20 + random.below(150)));
        let target = {
            let targets = targets.lock().unwrap();
            let count = targets.len() as u64;
            if count == 0 {
                None
            } else {
                targets.iter().nth(random.below(count) as usize).map(|(id, guard)| (*id, *guard))
            }
        };
        let Some((luagate, attacks_guard)) = target else { continue };
        let is_guard = |name: &str| name == "permit-guard";
        let mut victims: Vec<u32> = below(luagate)
            .into_iter()
            .filter(|(_, name)| is_guard(name) == attacks_guard)
            .map(|(id, _)| id)
            .collect();
        if !attacks_guard {
            victims.extend([luagate, luagate]);
        }
        if victims.is_empty() {
            continue;
        }
        let victim = victims[random.below(victims.len() as u64) as usize];
        if random.below(3) == 0 {
            signal_to(victim, "KILL");
        } else if signal_to(victim, "STOP") {
            stopped.push((Instant::now() + Duration::from_millis(random.below(PAUSE)), victim));
        }
        attacks.fetch_add(1, Ordering::Relaxed);
    }
}

/// Faults of the server and the network, one after the other.
fn harm(random: &mut Random, server: &mut Server, proxy: &Proxy, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let time = Duration::from_millis(random.below(PAUSE));
        match random.below(3) {
            0 => {
                server.pause();
                sleep(time);
                server.resume();
            }
            1 => {
                server.kill();
                sleep(time);
                server.start_again();
                proxy.lead_to(server);
            }
            _ => {
                proxy.go_silent();
                proxy.refuse();
                sleep(time);
                proxy.lead_to(server);
            }
        }
        sleep(Duration::from_millis(2 * random.below(PAUSE)));
    }
}

#[test]
fn the_limit_holds_while_every_process_is_killed_stopped_and_continued() {
    let is_long = std::env::var("LUAGATE_PROVE").is_ok_and(|length| length == "long");
    let time = Duration::from_secs(if is_long { 600 } else { 20 });
    let mut server = crate::own!(server());
    let proxy = Proxy::new(&server);
    let target = target(&server, proxy.url.clone());
    let folder = tempfile::tempdir().unwrap();
    let (targets, is_over, attacks) = (Targets::default(), AtomicBool::new(false), AtomicUsize::new(0));
    let seed = crate::support::workers::seed();
    println!("attacks from seed {seed}");
    scope(|scope| {
        let (folder, targets, is_over, attacks, target) =
            (folder.path(), &targets, &is_over, &attacks, &target);
        for number in 0..RUNS {
            scope.spawn(move || keep_running(target, folder, seed + number, targets, is_over));
        }
        scope.spawn(move || attack(&mut Random::new(seed), targets, is_over, attacks));
        let harmed = scope.spawn({
            let (server, proxy) = (&mut server, &proxy);
            move || harm(&mut Random::new(seed), server, proxy, is_over)
        });
        let begun = Instant::now();
        while begun.elapsed() < time {
            sleep(Duration::from_secs(1));
            if begun.elapsed().as_secs().is_multiple_of(30) {
                let done = begun.elapsed().as_secs();
                println!("{done} of {} s, {} attacks", time.as_secs(), attacks.load(Ordering::Relaxed));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        harmed.join().unwrap();
    });
    std::mem::forget(target); // its keys end with the server
    let granted = assert_limit(folder.path());
    let attacks = attacks.into_inner();
    println!("{granted} granted, {attacks} attacks");
    assert!(granted > 10 && attacks > 50, "{granted} granted, {attacks} attacks");
}
