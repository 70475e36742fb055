//! Promise: the scripts keep the invariants and every waiter is served. Three clients ask, wait, refresh,
//! release, give up and die in every order. Calls, replies and messages may be late or lost, and leases may
//! end at any time.
//!
//! `LUAGATE_PROVE=long` explores wider bounds.

use luagate_proof::checking::{Explored, World};
use luagate_proof::likeness::alike;
use luagate_proof::scripts::Scripts;
use luagate_proof::several::Several;
use luagate_proof::situation::{Setting, Situation, Want};
use stateright::Model;
use std::collections::{HashMap, HashSet};

/// Four kinds of clients: without a time limit, without waiting, with a deadline, and without messages.
fn in_line(permits: u32) -> Want {
    Want { permits, lease: 1, at_least: 0, max_waiting: 0, head_start: 0, wait: None, inbox: true }
}

fn at_once(permits: u32) -> Want {
    Want { wait: Some(0), ..in_line(permits) }
}

fn hasty(permits: u32) -> Want {
    Want { wait: Some(1), ..in_line(permits) }
}

fn without_inbox(permits: u32) -> Want {
    Want { inbox: false, ..in_line(permits) }
}

/// Joins only an empty line.
fn second_in_line(permits: u32) -> Want {
    Want { max_waiting: 1, ..in_line(permits) }
}

/// The permits are in use for at least one tick.
fn for_a_tick(permits: u32) -> Want {
    Want { lease: 2, at_least: 1, ..in_line(permits) }
}

/// With a head start that is longer than everything takes.
fn urgent(permits: u32) -> Want {
    Want { head_start: 1_000, ..in_line(permits) }
}

/// The minimum depth of each setting: the number of steps to its farthest situation.
const DEPTH: usize = 25;

/// Three clients that want something once each, and no faults.
fn setting(name: &'static str, limit: u32, wants: &[Want]) -> Setting {
    Setting {
        name,
        clients: 3,
        limit,
        wants: wants.to_vec(),
        asks: 1,
        opened: true,
        renewals: 0,
        faults: 0,
        delay: 1,
        exact: false,
    }
}

/// The settings, each with its minimum number of situations. A lower number shows that the bounds became too
/// narrow, or that different situations were taken for alike. In the long form more calls and clients are
/// late, and two faults happen.
fn settings(long: bool) -> Vec<(Setting, usize)> {
    let longer = |want: Want| Want { lease: 2, ..want };
    let delay = u64::from(long);
    let refreshed = setting("one permit, refreshed", 1, &[at_once(1), in_line(1)].map(longer));
    let refreshed = Setting { delay, renewals: 1, ..refreshed };
    let fault = Setting { faults: 1, delay: 0, ..setting("one permit, one fault", 1, &[in_line(1)]) };
    let late = Setting { name: "three late clients", faults: 0, delay: 1, ..fault.clone() };
    let both = Setting { name: "two late clients, one fault", faults: 1, clients: 2, ..late.clone() };
    let by_twos = setting("a client wants more than the limit", 1, &[at_once(2), in_line(1)]);
    let weights = [in_line(1), in_line(2)];
    let two_permits = Setting { delay, ..setting("two permits", 2, &weights) };
    let weights = Setting { clients: 2, faults: 1, ..setting("two permits, one fault", 2, &weights) };
    let no_inbox = [without_inbox(1), in_line(2)];
    let no_inbox = Setting { delay, ..setting("two permits, no inbox", 2, &no_inbox) };
    let deadline = setting("waits with a deadline", 1, &[hasty(1), in_line(1)]);
    let first = Setting {
        opened: false,
        clients: 2,
        faults: 1,
        ..setting("first use, one fault", 1, &[in_line(1), hasty(1)])
    };
    let twice = Setting { name: "two clients, twice, one fault", clients: 2, asks: 2, ..fault.clone() };
    let bounded =
        Setting { name: "a bounded line, one fault", wants: vec![second_in_line(1)], ..fault.clone() };
    let held = setting("one permit, minimum hold of a tick", 1, &[for_a_tick(1)]);
    let in_part = [for_a_tick(2), in_line(1)];
    let in_part = Setting { delay: 0, ..setting("two permits, minimum hold of a tick", 2, &in_part) };
    let priority = setting("one permit, head start", 1, &[in_line(1), urgent(1)]);
    let second = Want { max_waiting: 1, ..urgent(1) };
    let bounded_priority =
        Setting { delay: 0, ..setting("a bounded line, head start", 1, &[in_line(1), second]) };
    let mut all = vec![
        (priority, 59_000),
        (bounded_priority, 1),
        (bounded, 39_000),
        (held, 35_000),
        (in_part, 36_000),
        (refreshed, if long { 170_000 } else { 12_500 }),
        (fault.clone(), 42_000),
        (late, 21_000),
        (both.clone(), 18_400),
        (by_twos, 23_000),
        (two_permits, if long { 350_000 } else { 17_000 }),
        (weights, 170_000),
        (no_inbox, if long { 460_000 } else { 27_000 }),
        (deadline, 35_000),
        (first, 27_000),
        (twice.clone(), 85_000),
    ];
    if long {
        let two = |name, setting| Setting { name, faults: 2, ..setting };
        all.push((two("one permit, two faults", fault), 1_000_000));
        all.push((two("two late clients, two faults", both), 550_000));
        all.push((two("two clients, twice, two faults", twice), 4_200_000));
    }
    all
}

fn is_long() -> bool {
    std::env::var_os("LUAGATE_PROVE").is_some()
}

fn explore(setting: &Setting, scripts: &Scripts, threads: usize) -> Explored {
    let world = World::new(setting, scripts).unwrap_or_else(|error| panic!("{error}"));
    world.explore(threads)
}

#[test]
fn every_situation_keeps_the_promises() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for (setting, least) in settings(is_long()) {
        let explored = explore(&setting, &Scripts::read(), cores);
        println!(
            "{}: {} situations, {} generated, depth {}, served within {} ticks, in {:.1?}",
            setting.name,
            explored.unique,
            explored.generated,
            explored.depth,
            explored.longest_wait,
            explored.took
        );
        if let Some(failure) = explored.failure {
            panic!("{}: {}", setting.name, failure.story);
        }
        assert_eq!(explored.missing, [""; 0], "{} never happens", setting.name);
        assert!(explored.depth >= DEPTH, "the depth is only {}", explored.depth);
        assert!(explored.unique >= least, "{}: only {} situations of {least}", setting.name, explored.unique);
    }
}

/// The scripts with one change.
fn with_fault(file: &str, right: &str, wrong: &str) -> Scripts {
    let scripts = Scripts::read();
    let text = &scripts.files()[file];
    assert_eq!(text.matches(right).count(), 1, "{file}: {right}");
    scripts.with_file(file, text.replace(right, wrong))
}

/// A setting that finds a fault, the file, and the changed place: right and wrong.
type Fault<'a> = (&'a Setting, &'static str, &'static str, &'static str);

/// Faults in grants, replies and the time to ask again.
fn faults_in_granting<'a>(two: &'a Setting, calm: &'a Setting, three: &'a Setting) -> [Fault<'a>; 7] {
    [
        // Grants although nothing is free.
        (
            two,
            "semaphore/serve.lua",
            "local fits = alive and in_use + permits <= limit",
            "local fits = alive and in_use <= limit",
        ),
        // Overtakes waiters.
        (
            three,
            "semaphore/serve.lua",
            "local in_line = waiting > (asks and behind or 0)",
            "local in_line = waiting > (asks and behind or 0) and (record or not asks or in_use >= limit)",
        ),
        // Grants twice to the same id.
        (two, "semaphore/acquire.lua", "if own_end and tonumber(own_end) > now then", "if false then"),
        // Forgets the ticket that a waiter sends.
        (
            three,
            "semaphore/place.lua",
            "waits and not place and ticket == 0",
            "waits and not place; ticket = 0",
        ),
        // Lets a waiter sleep too long.
        (
            calm,
            "semaphore/stay.lua",
            "retry_after = math.min(retry_after, ask_in)\n  end\nend\n",
            "end\nend\nretry_after = 3 * wait_ms\n",
        ),
        // Grants to waiters whose process has ended.
        (three, "semaphore/serve.lua", "alive = in_use >= limit or listens(channel)", "alive = true"),
        // A fence may repeat.
        (
            two,
            "semaphore/load.lua",
            "local next_fence = last_fence < micros and micros or last_fence + 1",
            "local next_fence = micros",
        ),
    ]
}

/// Faults in ends, releases and the removal of dead waiters.
fn faults_in_ending<'a>(two: &'a Setting, three: &'a Setting, long_lease: &'a Setting) -> [Fault<'a>; 6] {
    [
        // A lease lasts one moment longer than its holder believes.
        (two, "semaphore/refresh.lua", "before_ms <= now", "before_ms < now"),
        (
            two,
            "semaphore/expire.lua",
            "suspended or fence or now >= next_end then",
            "suspended or fence or now > next_end then",
        ),
        // Released permits are not handed over.
        (two, "semaphore/release.lua", "patience_until = true", "patience_until = false"),
        // Does not check the line although the deadline of the first waiter is over.
        (long_lease, "semaphore/place.lua", "now >= head_until or not", "not"),
        // Serves a waiter whose deadline is over.
        (two, "semaphore/serve.lua", "alive = patience > now", "alive = patience >= now"),
        // A dead waiter stays ahead of live ones.
        (three, "semaphore/serve.lua", "if alive and permits <= limit and", "if permits <= limit and"),
    ]
}

/// Faults in the bound on the line and in the minimum hold.
fn faults_in_bounds<'a>(bounded: &'a Setting, held: &'a Setting, urgent: &'a Setting) -> [Fault<'a>; 8] {
    [
        // One waiter too many joins the line.
        (
            bounded,
            "semaphore/acquire.lua",
            "joins = waiting - behind < max_waiting",
            "joins = waiting - behind <= max_waiting",
        ),
        (
            bounded,
            "semaphore/acquire.lua",
            "waiting - behind >= max_waiting then",
            "waiting - behind > max_waiting then",
        ),
        // Comes before waiters that came earlier than its head start.
        (
            urgent,
            "semaphore/place.lua",
            "behind = call('ZCOUNT'",
            "behind = waiting and call('ZCARD', queue) or call('ZCOUNT'",
        ),
        // Comes before waiters without the ticket of this place.
        (
            urgent,
            "semaphore/place.lua",
            "ticket = math.max(1, next_fence - head_start_ms * 1000)",
            "ticket = 1",
        ),
        // Dead waiters keep others from joining.
        (bounded, "semaphore/sweep.lua", "if #gone > 0 then", "if false then"),
        // Forgets the minimum hold, or that of a part.
        (held, "semaphore/cool.lua", "if least_end > now and keep < weight then", "if false then"),
        (held, "semaphore/cool.lua", "keep < weight then", "keep == 0 then"),
        // Counts a waiter's minimum hold from when it asked.
        (
            held,
            "semaphore/grant.lua",
            "at_least > 0 and now + at_least or 0",
            "mine and at_least > 0 and now + at_least or 0",
        ),
    ]
}

#[test]
fn faults_in_the_scripts_are_found() {
    let two = Setting {
        clients: 2,
        faults: 1,
        renewals: 1,
        ..setting("two clients", 1, &[in_line(1), at_once(1)])
    };
    let calm = Setting { clients: 2, ..setting("calm", 1, &[in_line(1)]) };
    let three = Setting { clients: 3, delay: 0, ..two.clone() };
    let patient = Want { lease: 4, ..in_line(1) };
    let long_lease = Setting { faults: 1, delay: 0, ..setting("a long lease", 1, &[patient]) };
    let in_granting = faults_in_granting(&two, &calm, &three);
    let in_ending = faults_in_ending(&two, &three, &long_lease);
    let bounded = Setting { wants: vec![second_in_line(1)], ..three.clone() };
    let held = Setting { clients: 2, delay: 0, ..setting("held", 2, &[for_a_tick(2)]) };
    let urgent = Setting { wants: vec![in_line(1), urgent(1)], ..three.clone() };
    let in_bounds = faults_in_bounds(&bounded, &held, &urgent);
    for (setting, file, right, wrong) in in_granting.into_iter().chain(in_ending).chain(in_bounds) {
        let explored = explore(setting, &with_fault(file, right, wrong), 1);
        let failure = explored.failure.as_ref();
        let failure = failure.unwrap_or_else(|| panic!("{wrong} in {file} was not found: {explored:?}"));
        println!(
            "{file}: {wrong:?}: {} is broken, after {} situations in {:.1?}",
            failure.rule, explored.unique, explored.took
        );
    }
}

/// All situations, each with its successors.
fn reach(setting: &Setting) -> (usize, HashMap<u64, HashSet<u64>>) {
    let world = World::new(setting, &Scripts::read()).unwrap_or_else(|error| panic!("{error}"));
    let (mut seen, mut after) = (HashSet::new(), HashMap::new());
    let mut pending = world.init_states();
    let mut events = Vec::new();
    while let Some(situation) = pending.pop() {
        if !seen.insert(situation.print) {
            continue;
        }
        world.actions(&situation, &mut events);
        let next = events.drain(..).filter_map(|event| world.next_state(&situation, event));
        let next: Vec<Situation> = next.collect();
        let prints = next.iter().map(|next| alike(next, setting)).collect();
        let known = after.entry(alike(&situation, setting)).or_insert_with(|| Clone::clone(&prints));
        assert_eq!(*known, prints, "alike, but with different successors: {situation:#?}");
        pending.extend(next);
    }
    (seen.len(), after)
}

#[test]
fn alike_situations_have_alike_successors() {
    let wants = [at_once(1), hasty(1)];
    let weights = [in_line(2), without_inbox(1)];
    let mut small = vec![
        Setting { clients: 2, faults: 1, ..setting("a fault", 1, &wants) },
        Setting { clients: 2, ..setting("a minimum hold", 2, &[for_a_tick(2)]) },
        Setting { clients: 2, ..setting("a head start", 1, &[in_line(1), urgent(1)]) },
    ];
    if is_long() {
        small.push(Setting { clients: 2, renewals: 1, ..setting("weights", 2, &weights) });
    }
    for setting in small {
        let merged = reach(&setting);
        let exact = Setting { exact: true, ..setting.clone() };
        let exact = reach(&exact);
        println!("{}: {} situations, {} without alike ones", setting.name, exact.0, merged.0);
        assert!(exact.0 > 3 * merged.0, "too few situations were taken for alike");
        assert!(exact.1 == merged.1, "{}: alike situations have different successors", setting.name);
    }
}

#[test]
fn several_semaphores_are_acquired_all_or_none() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Clients, faults, ticks, the minimum hold, and the minimum number of situations.
    let (ticks, situations) = if is_long() { (2, 85_000) } else { (1, 15_000) };
    for (clients, faults, ticks, at_least, least) in [(3, 0, 1, 0, 27_000), (2, 1, ticks, 1, situations)] {
        let world = Several::new(clients, faults, ticks, at_least, &Scripts::read());
        let world = world.unwrap_or_else(|error| panic!("{error}"));
        let explored = world.explore(cores);
        println!(
            "two semaphores, {clients} clients, {faults} faults: {} situations, {} generated, depth {}, in {:.1?}",
            explored.unique, explored.generated, explored.depth, explored.took
        );
        if let Some(failure) = explored.failure {
            panic!("{}", failure.story);
        }
        assert_eq!(explored.missing, [""; 0], "never happens");
        assert!(explored.unique >= least, "only {} situations", explored.unique);
    }
    let try_all = "semaphore/try_acquire_several.lua";
    for (file, right, wrong) in [
        // Takes permits of other holders.
        (try_all, "waiting == 0 and in_use + want <= limit", "waiting == 0 and in_use <= limit"),
        // Grants one although another semaphore denies.
        (try_all, "if not (above or blocked) then one", "if not above then one"),
        // Forgets the minimum hold.
        ("semaphore/cool.lua", "if least_end > now and", "if least_end > now and false and"),
    ] {
        let world = Several::new(2, 0, 0, 1, &with_fault(file, right, wrong));
        let world = world.unwrap_or_else(|error| panic!("{error}"));
        assert!(world.explore(1).failure.is_some(), "{wrong} in {file} was not found");
    }
}
