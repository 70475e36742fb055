//! Processes in all languages share one semaphore.

use super::language::Language;
use super::stays::{self, Stay};
use super::team::Team;
use super::worker::{LIMIT, NAME};
use crate::support::proxy::Proxy;
use crate::support::random::Random;
use crate::support::{Server, eventually, kill_connections};
use libtest_mimic::Failed;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

type Test = fn(&[Language]) -> Result<(), Failed>;

pub const TESTS: [(&str, Test); 2] = [
    ("limit_and_order_hold_across_languages", limit_and_order),
    ("all_processes_continue_after_faults", faults),
];

/// The numbers of killed processes and of lost replies, one at a time.
const KILLS: usize = 12;
const HOLDERS_KILLED: usize = 2;
const REPLIES_LOST: usize = 60;

fn assert_limit(stays: &[Stay]) {
    let most = stays::most_held(stays);
    assert!(most <= LIMIT.into(), "{most} permits were held at the same time");
    assert!(most > 1, "no two permits were ever held at the same time: nothing was tested");
}

/// No permit is held, and the line is empty.
fn assert_free(server: &Server) {
    let semaphore = server.gate().semaphore(NAME, LIMIT);
    eventually("all permits are released", || {
        let state = semaphore.inspect().unwrap();
        (state.in_use == 0 && state.waiter_count == 0).then_some(())
    });
}

fn limit_and_order(languages: &[Language]) -> Result<(), Failed> {
    let server = crate::server();
    let proxy = Proxy::new(&server);
    let mut team = Team::new(&proxy.url, &server.prefix, languages, 2);
    let names = team.names();
    let mut random = Random::new(crate::support::workers::seed());
    for round in 0..REPLIES_LOST {
        proxy.lose_reply_of_script();
        eventually("a reply is lost", || proxy.is_done().then_some(()));
        // If all other processes wait, only this process receives replies, and losing each of them would let
        // its lease end.
        let before = proxy.replies_to_scripts();
        eventually("the next reply arrives", || (proxy.replies_to_scripts() > before).then_some(()));
        sleep(Duration::from_millis(random.below(100)));
        if round % (REPLIES_LOST / KILLS) == 0 {
            team.kill(random.below(1_000) as usize);
        }
    }
    let log = format!("{}:log", server.prefix);
    let mut con = server.connection();
    let mut cut = || stays::read(&mut con, &log).iter().filter(|stay| stay.is_cut).count();
    while cut() < HOLDERS_KILLED + LIMIT as usize {
        team.kill(random.below(1_000) as usize);
        team.continues(1);
    }
    team.finish();
    assert_free(&server);

    let mut stays = stays::read(&mut con, &log);
    assert_limit(&stays);
    stays::assert_in_order(&mut stays);
    let mut waited = BTreeMap::new();
    for stay in stays.iter().filter(|stay| stay.ticket > 0) {
        *waited.entry(stay.language.as_str()).or_insert(0) += 1;
    }
    for name in names {
        let count = waited.get(name).copied().unwrap_or(0);
        assert!(count >= 10, "{name} was granted {count} times in line, of {waited:?}");
    }
    let cut = stays.iter().filter(|stay| stay.is_cut).count();
    println!("{} stays, {cut} of them cut by a kill; in line {waited:?}", stays.len());
    Ok(())
}

fn faults(languages: &[Language]) -> Result<(), Failed> {
    let mut server = crate::server();
    let team = Team::new(&server.url, &server.prefix, languages, 2);
    let log = format!("{}:log", server.prefix);
    let mut con = server.connection();
    kill_connections(&mut con, "pubsub");
    team.continues(2);
    kill_connections(&mut con, "normal");
    team.continues(2);
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut con)?;
    team.continues(2);
    assert_limit(&stays::read(&mut con, &log));
    server.kill();
    server.start_again(); // all data is lost
    team.continues(2);
    team.finish();
    assert_free(&server);
    Ok(())
}
